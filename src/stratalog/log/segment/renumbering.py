"""Give the batches of a segment other offsets and another leader epoch, in place.

The CRC of a batch covers neither its base offset nor its leader epoch, and records and index entries hold relative
offsets. Moving a segment thus costs 12 bytes a batch, and its indexes stay valid. Writers use this for segments whose
final offsets are not known yet.
"""

from __future__ import annotations

from stratalog.errors import CorruptRecordError
from stratalog.records import batch_format as fmt
from stratalog.util import File


def renumber(file: File, shift: int, leader_epoch: int) -> None:
    """Add `shift` to the offsets of every batch of a `.log`, and set the leader epoch.

    Not durable until the file is synced, and not atomic: for a segment without readers. Raises CorruptRecordError
    unless the file is a sequence of whole batches of format 2, or if an offset would be negative.
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
