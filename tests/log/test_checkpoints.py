"""Checkpoint files: Kafka's text, whole or not at all, and every damage named."""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import CorruptCheckpointError
from stratalog.log.format.checkpoints import (
    OffsetCheckpoint,
    PartitionMetadataFile,
    decode_epochs,
    decode_offsets,
    decode_partition_metadata,
    encode_epochs,
    encode_offsets,
    encode_partition_metadata,
)
from stratalog.log.format.values import EpochEntry

GOLDEN = Path(__file__).parents[1] / "golden" / "dump"

offsets = st.dictionaries(
    st.tuples(st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 2**31 - 1)),
    st.integers(0, 2**63 - 1),
    max_size=10,
)


def test_an_offset_checkpoint_looks_as_kafkas(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(tmp_path / "recovery-point-offset-checkpoint")
    assert checkpoint.read() == {}
    checkpoint.write({("orders", 1): 998, ("orders", 0): 1007, ("a.b_c-d", 12): 2**40})
    assert checkpoint.path.read_bytes() == b"0\n3\na.b_c-d 12 1099511627776\norders 0 1007\norders 1 998\n"
    assert [path.name for path in tmp_path.iterdir()] == ["recovery-point-offset-checkpoint"]


@given(offsets=offsets)
@settings(deadline=None)
def test_offsets_come_back_as_written(offsets: dict[tuple[str, int], int]) -> None:
    """Decoding what was encoded gives the same map."""
    assert decode_offsets(encode_offsets(offsets)) == offsets


@given(entries=st.lists(st.builds(EpochEntry, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=10))
@settings(deadline=None)
def test_epochs_come_back_as_written(entries: list[EpochEntry]) -> None:
    """Decoding what was encoded gives the same list."""
    assert decode_epochs(encode_epochs(entries)) == entries


def test_an_empty_file_has_no_entries() -> None:
    assert decode_offsets(b"") == {}
    assert decode_epochs(b"") == decode_epochs(b"0\n0\n") == []


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"1\n0\n", "version 1"),
        (b"1\n", "version 1"),
        (b"0\n", "line 2"),
        (b"x\n0\n", "line 1 has 'x'"),
        (b"0\n-\n", "line 2 has '-'"),
        (b"0\n2\na 0 1\n", "1 entries, but line 2 says 2"),
        (b"0\n1\na 0 1\nb 0 2\n", "2 entries, but line 2 says 1"),
        (b"0\n1\na 0\n", "line 3 is 'a 0'"),
        (b"0\n1\na 0 1_0\n", "line 3 has '1_0'"),
        (b"0\n1\na b 1\n", "line 3 has 'b'"),
        (b"0\n1\na 0 " + b"9" * 30 + b"\n", "line 3 has '999"),
        (b"\xff\xfe", "byte 0 is no UTF-8"),
    ],
)
def test_damage_is_named_with_its_line(tmp_path: Path, data: bytes, complaint: str) -> None:
    path = tmp_path / "log-start-offset-checkpoint"
    path.write_bytes(data)
    with pytest.raises(CorruptCheckpointError, match="log-start-offset-checkpoint") as caught:
        OffsetCheckpoint(path).read()
    assert complaint in str(caught.value)


def test_a_cut_at_every_byte_is_reported() -> None:
    data = encode_offsets({("orders", 0): 1007, ("orders", 1): 998})
    for size in range(1, len(data)):
        with pytest.raises(CorruptCheckpointError, match="offset checkpoint"):
            decode_offsets(data[:size])


def test_negative_epochs_are_refused() -> None:
    with pytest.raises(CorruptCheckpointError, match="0 up"):
        decode_epochs(b"0\n1\n-1 0\n")


@pytest.mark.parametrize("topic", ["none", "transactions", "__consumer_offsets"])
def test_partition_metadata_is_read_and_written_as_kafka_does(tmp_path: Path, topic: str) -> None:
    golden = (GOLDEN / topic / "partition.metadata").read_bytes()
    topic_id = decode_partition_metadata(golden)
    file = PartitionMetadataFile(tmp_path / "partition.metadata")
    assert file.read() is None
    file.write(topic_id)
    assert file.path.read_bytes() == golden
    assert file.read() == topic_id


def test_damaged_partition_metadata_is_reported_at_every_byte() -> None:
    """Cut or changed anywhere, it is an error or another valid topic id, never an exception of another kind."""
    data = encode_partition_metadata(uuid.UUID("26647378-b181-4e59-b7b9-50f0abda7abc"))
    for n in range(len(data)):
        for damaged in (data[:n], data[:n] + b"!" + data[n + 1 :], data[:n] + b"\xff" + data[n + 1 :]):
            with contextlib.suppress(CorruptCheckpointError):
                assert decode_partition_metadata(damaged).int != 0
    with pytest.raises(CorruptCheckpointError, match="zero"):
        decode_partition_metadata(encode_partition_metadata(uuid.UUID(int=0)))
    with pytest.raises(CorruptCheckpointError, match="version 1"):
        decode_partition_metadata(b"version: 1\ntopic_id: JmRzeLGBTlm3uVDwq9p6vA")
