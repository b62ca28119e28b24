"""The records of `__consumer_offsets`, or of another such topic, in a data directory of a broker, ours or Kafka's."""

from __future__ import annotations

from pathlib import Path

from stratalog.log.format.file_names import parse_partition_dir
from stratalog.records.batch import iter_batches

#: Partition, key, value.
StoredRecord = tuple[int, bytes, bytes | None]


def stored_records(data_dir: Path, topic: str = "__consumer_offsets") -> list[StoredRecord]:
    """All of them, by partition in the order of the log; the broker should be stopped."""
    found = []
    for directory in data_dir.glob(f"{topic}-*"):
        parsed = parse_partition_dir(directory.name)
        assert parsed is not None
        for path in sorted(directory.glob("*.log")):
            for batch in iter_batches(path.read_bytes()):
                for record in batch.records():
                    assert record.key is not None
                    value = None if record.value is None else bytes(record.value)
                    found.append((parsed[1], bytes(record.key), value))
    return sorted(found, key=lambda record: record[0])
