"""Give the batches of a segment other offsets and another leader epoch, in place.

Base offset and leader epoch are the two fields of a batch that its CRC does not cover, and records and index entries
hold offsets relative to a base: so a segment moves along the offsets by 12 bytes a batch, whatever its size, and its
indexes stay as they are. A caller that writes segments before it is known where they will lie needs nothing more at the
end.
"""

from __future__ import annotations

from stratalog.errors import CorruptRecordError
from stratalog.records import batch_format as fmt
from stratalog.util import File


def renumber(file: File, shift: int, leader_epoch: int) -> None:
    """Add `shift` to the offsets of every batch of a `.log`, and set the leader epoch.

    Not durable until the file is synced, and not atomic: for a segment that has no readers yet. CorruptRecordError for
    what is no sequence of whole batches of format 2 or would get a negative offset.
    """
    position, size = 0, file.size()
    while position < size:
        header = bytearray(file.pread(fmt.HEADER_SIZE_UP_TO_MAGIC, position))
        if len(header) < fmt.HEADER_SIZE_UP_TO_MAGIC or header[fmt.MAGIC_AT] != fmt.MAGIC:
            raise CorruptRecordError(f"{file.path}: no batch of format 2 at position {position}")
        (offset,) = fmt.INT64.unpack_from(header, fmt.BASE_OFFSET_AT)
        (length,) = fmt.INT32.unpack_from(header, fmt.LENGTH_AT)
        end = position + fmt.LOG_OVERHEAD + length
        if length < fmt.LENGTH_MIN or end > size or offset + shift < 0:
            raise CorruptRecordError(
                f"{file.path}: the batch at position {position} has length {length} and offset {offset}:"
                f" the file has {size} bytes, and offsets are moved by {shift}"
            )
        fmt.INT64.pack_into(header, fmt.BASE_OFFSET_AT, offset + shift)
        fmt.INT32.pack_into(header, fmt.PARTITION_LEADER_EPOCH_AT, leader_epoch)
        file.write_at(header[: fmt.MAGIC_AT], position)
        position = end
