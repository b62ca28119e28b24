from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import CorruptRecordError
from stratalog.remote.api.interfaces import (
    INT32_MAX,
    CustomMetadata,
    RemoteLogMetadata,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)
from stratalog.remote.api.segment_state import RemoteLogSegmentState, RemotePartitionDeleteState
from stratalog.remote.api.topic_id_partition import TopicIdPartition
from stratalog.remote.metadata.serde import decode, decode_plainly, encode
from tests.remote.goldens import GOLDENS
from tests.remote.values import LARGE_SEGMENTS, PARTITION, SEGMENT_ID

_T = 1_700_000_000_000
_EPOCHS = {0: 4711, 2: 5000}
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED

EVENTS: dict[str, RemoteLogMetadata] = {
    "segment": RemoteLogSegmentMetadata(SEGMENT_ID, 4711, 6000, _T + 123, 1, _T + 1000, 1048576, _EPOCHS),
    "segment-custom-txn-empty": RemoteLogSegmentMetadata(
        SEGMENT_ID,
        4711,
        6000,
        -1,
        1,
        _T + 1000,
        INT32_MAX,
        _EPOCHS,
        _FINISHED,
        CustomMetadata(b"\1\2\3"),
        True,
    ),
    "update": RemoteLogSegmentMetadataUpdate(SEGMENT_ID, _T + 2000, CustomMetadata(bytes(200)), _FINISHED, 7),
    "update-delete-finished": RemoteLogSegmentMetadataUpdate(
        SEGMENT_ID, _T + 2000, None, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED, -1
    ),
    "partition-delete": RemotePartitionDeleteMetadata(
        PARTITION, RemotePartitionDeleteState.DELETE_PARTITION_STARTED, _T + 3000, 2
    ),
}


@pytest.mark.parametrize("name", EVENTS)
def test_bytes_are_those_of_kafkas_serde(name: str) -> None:
    assert encode(EVENTS[name]).hex() == GOLDENS["events"][name]


@pytest.mark.parametrize("name", EVENTS)
def test_kafkas_bytes_are_read(name: str) -> None:
    assert decode(bytes.fromhex(GOLDENS["events"][name])) == EVENTS[name]


def test_a_size_beyond_31_bits_is_clamped_for_kafka_and_kept_for_us(caplog: pytest.LogCaptureFixture) -> None:
    event = RemoteLogSegmentMetadata(SEGMENT_ID, 4711, 6000, 0, 1, 0, 5 * 2**30, _EPOCHS)
    with caplog.at_level(logging.WARNING):
        data = encode(event)
    assert struct.pack(">i", INT32_MAX) in data
    assert decode(data) == event
    assert "5368709120 bytes" in caplog.text


@pytest.mark.parametrize("name", LARGE_SEGMENTS)
def test_kafka_reads_all_but_the_true_size_of_a_large_segment(name: str) -> None:
    event, kafkas = LARGE_SEGMENTS[name], GOLDENS["read"][name]
    assert encode(event).hex() == kafkas["bytes"]
    assert kafkas["size"] == INT32_MAX
    assert (kafkas["start"], kafkas["end"]) == (event.start_offset, event.end_offset)
    assert kafkas["max_timestamp"] == event.max_timestamp_ms
    assert dict(kafkas["epochs"]) == event.segment_leader_epochs
    assert (kafkas["state"], kafkas["txn_index_empty"]) == (event.state.name, event.txn_index_empty)


@pytest.mark.parametrize("name", LARGE_SEGMENTS)
def test_what_kafka_writes_again_has_lost_the_true_size_and_nothing_else(name: str) -> None:
    again = decode(bytes.fromhex(GOLDENS["read"][name]["again"]))
    assert again == replace(LARGE_SEGMENTS[name], segment_size_bytes=INT32_MAX)


@settings(deadline=None)
@given(
    topic=st.text(min_size=1, max_size=20),
    ids=st.tuples(st.uuids(), st.uuids()),
    offsets=st.lists(st.integers(0, 2**63 - 1), min_size=2, max_size=6, unique=True).map(sorted),
    numbers=st.lists(st.integers(0, 2**31 - 1), min_size=6, max_size=6, unique=True).map(sorted),
    times=st.tuples(st.integers(-1, 2**63 - 1), st.integers(0, 2**63 - 1)),
    size=st.integers(0, 2**63 - 1),
    state=st.sampled_from(RemoteLogSegmentState),
    custom=st.none() | st.binary(max_size=300),
    txn_empty=st.booleans(),
)
def test_every_event_survives_the_round_trip(  # type: ignore[no-untyped-def]
    topic, ids, offsets, numbers, times, size, state, custom, txn_empty
) -> None:
    """Decoding is the inverse of encoding."""
    segment_id = RemoteLogSegmentId(TopicIdPartition(ids[0], topic, numbers[0]), ids[1])
    metadata = None if custom is None else CustomMetadata(custom)
    event = RemoteLogSegmentMetadata(
        segment_id,
        offsets[0],
        offsets[-1],
        times[0],
        numbers[1],
        times[1],
        size,
        dict(zip(numbers, offsets[:-1], strict=False)),
        state,
        metadata,
        txn_empty,
    )
    assert decode(encode(event)) == event
    change = RemoteLogSegmentMetadataUpdate(segment_id, times[1], metadata, state, numbers[1])
    assert decode(encode(change)) == change


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_cut_anywhere_is_refused(name: str) -> None:
    data = encode(EVENTS[name])
    for end in range(len(data)):
        with pytest.raises(CorruptRecordError):
            decode(data[:end])


def test_bytes_behind_an_event_are_refused() -> None:
    with pytest.raises(CorruptRecordError, match="1 bytes too many"):
        decode(encode(EVENTS["update"]) + b"\0")


@settings(deadline=None)
@given(name=st.sampled_from(sorted(EVENTS)), at=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_gives_an_event_or_a_typed_error(name: str, at: int, bit: int) -> None:
    """Whatever bytes come, decoding returns an event or raises CorruptRecordError, nothing else."""
    data = bytearray(encode(EVENTS[name]))
    data[at % len(data)] ^= 1 << bit
    try:
        decode(bytes(data))
    except CorruptRecordError:
        return


def _decoded(decoder: Callable[[bytes], RemoteLogMetadata], data: bytes) -> RemoteLogMetadata | str:
    try:
        return decoder(data)
    except CorruptRecordError as error:
        return str(error)


@settings(deadline=None, max_examples=500)
@given(
    name=st.sampled_from(["a", "flights", "x" * 125, "x" * 126, "x" * 127, "x" * 249]),
    epochs=st.sampled_from([{0: 10}, {3: 10, 5: 12}, {7: 19}, {7: 20}]),
    tagged=st.booleans(),
    custom=st.sampled_from([None, CustomMetadata(b""), CustomMetadata(b"abc")]),
    state=st.sampled_from(RemoteLogSegmentState),
    is_update=st.booleans(),
    damage=st.none() | st.tuples(st.integers(0, 200), st.integers(0, 255), st.integers(-2, 2)),
)
def test_the_fast_way_reads_what_the_plain_one_reads(
    name: str,
    epochs: dict[int, int],
    tagged: bool,
    custom: CustomMetadata | None,
    state: RemoteLogSegmentState,
    is_update: bool,
    damage: tuple[int, int, int] | None,
) -> None:
    """Whatever the bytes, sound or damaged, both decoders give the same event or say the same of it."""
    segment_id = RemoteLogSegmentId(TopicIdPartition(PARTITION.topic_id, name, 3), SEGMENT_ID.id)
    event: RemoteLogMetadata
    if is_update:
        event = RemoteLogSegmentMetadataUpdate(segment_id, _T, custom, state, 1)
        data = encode(event)
    else:
        event = RemoteLogSegmentMetadata(segment_id, 10, 20, _T, 1, _T, 100, {0: 10}, state, custom, tagged)
        data = encode(replace(event, segment_leader_epochs=epochs))
    if damage is not None:
        at, value, length = damage
        damaged = bytearray(data)
        damaged[at % len(data)] = value
        data = bytes(damaged[:length] if length < 0 else damaged + bytes(length))
    assert _decoded(decode, data) == _decoded(decode_plainly, data)
