"""A flipped bit makes a batch look like a message of an old format, with whatever stands in its place for a codec."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.errors import CorruptRecordError
from stratalog.log.format.file_names import log_file
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch import iter_batches
from stratalog.records.batch_format import MAGIC_AT
from stratalog.records.compression import Codec
from tests.log.log_model import batch_of

OLD_ATTRIBUTES_AT = MAGIC_AT + 1


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("magic", [0, 1])
def test_a_batch_whose_format_is_damaged_is_corrupt_and_nothing_else(tmp_path: Path, magic: int, codec: Codec) -> None:
    directory = tmp_path / "orders-0"
    log = PartitionLog.open(directory, LogConfig())
    log.append_as_leader(batch_of([b"a" * 100], [1]), leader_epoch=0)
    log.append_as_leader(batch_of([b"b"], [2]), leader_epoch=0)
    end = log.log_end_offset
    log.close()
    path = directory / log_file(0)
    data = bytearray(path.read_bytes())
    data[MAGIC_AT] = magic
    for attributes in (*range(8), 0x40 | codec):
        data[OLD_ATTRIBUTES_AT] = attributes
        path.write_bytes(data)
        log = PartitionLog.open(directory, LogConfig(), clean_shutdown=True, recovery_point=end)
        with suppress(CorruptRecordError):
            found = log.read(0, 1_000).slice
            assert found is None or next(iter_batches(found.read())).base_offset > 0
        log.close()
