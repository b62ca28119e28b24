"""Records of streams groups in `__consumer_offsets`, byte for byte as Apache Kafka writes them.

All integers are big-endian. Keys are the int16 of their schema and STRINGs (int16 length, UTF-8 bytes); values are the
int16 version 0 and flexible fields (KIP-482): an unsigned varint of a length plus one, tagged fields at the end.

    key 17  group             value: epoch int32, hash of the topics int64, tag 0: epoch of the topology whose topics
                              are all there int32, tag 1: [name, value] of settings of the assignment, tags 2 and 3:
                              epochs of descriptions int32; what is -1 is left out
    key 19  group, member id  value: instance id, rack id, client id, client host, rebalance timeout int32, epoch of the
                              topology int32, process id, -1 or 1 and an endpoint (host, port uint16), [tag name, value]
    key 20  group             value: epoch int32, tag 0: timestamp int64 (left out when 0)
    key 21  group, member id  value: active, standby, warm-up tasks: each [subtopology, [partition int32]]
    key 22  group, member id  value: epoch int32, previous epoch int32, state int8, tasks as in 21, and those to be
                              given up; active ones with tag 0: [epoch int32 of each]
    key 23  group             value: epoch int32, [subtopology: id, [source topic], [regex], [changelog],
                              [repartition sink], [repartition source], [copartition group: three times [int16]]];
                              an internal topic is its name, partitions int32, replicas int16, [name, value]

Subtopologies and partitions of tasks are sorted, and the tags of a member. Source: the schemas StreamsGroup*Key and
StreamsGroup*Value of Kafka 4.4.0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from struct import Struct
from typing import TypeVar

from stratalog.broker.coordinator_log import KeyValue
from stratalog.broker.groups.member_records import (
    NO_TAGS,
    decode_key,
    encode_key,
    flexible_reader,
    in_text_order,
    put_numbers,
    read_numbers,
    tag_reader,
    tagged_number,
)
from stratalog.broker.groups.modern import TargetEpoch
from stratalog.broker.groups.streams.values import (
    NO_TOPOLOGY,
    CopartitionGroup,
    CurrentTasks,
    HeldTasks,
    InternalTopic,
    MemberFacts,
    StreamsChangeKind,
    StreamsChangeValue,
    StreamsGroupChange,
    StreamsGroupEpoch,
    StreamsTopology,
    Subtopology,
    TaskEpochs,
    Tasks,
    TaskSets,
    TaskState,
    UserEndpoint,
)
from stratalog.broker.record_fields import INT8, INT16, INT32, INT64, FieldReader, put_count, put_string, put_tags

_NAMED = frozenset({StreamsChangeKind.MEMBER, StreamsChangeKind.TARGET, StreamsChangeKind.CURRENT})
_WHAT = "streams group record in __consumer_offsets"
_KINDS = {kind.value: kind for kind in StreamsChangeKind}
_UINT16 = Struct(">H")

_Entry = TypeVar("_Entry")


# --- writing ----------------------------------------------------------------------------------------------------------


def encode_streams_change(group_id: str, change: StreamsGroupChange) -> KeyValue:
    """Return key and value of the record."""
    key = encode_key(change.kind, group_id, change.member_id if change.kind in _NAMED else None)
    return key, None if change.value is None else _encode_value(change.value)


def _encode_value(value: StreamsChangeValue) -> bytes:
    out = bytearray(INT16.pack(0))
    tags: Mapping[int, bytes] = NO_TAGS
    if isinstance(value, StreamsGroupEpoch):
        out += INT32.pack(value.epoch) + INT64.pack(value.metadata_hash)
        tags = _epoch_tags(value)
    elif isinstance(value, TargetEpoch):
        out += INT32.pack(value.epoch)
        tags = {0: INT64.pack(value.timestamp_ms)} if value.timestamp_ms else NO_TAGS
    elif isinstance(value, MemberFacts):
        _put_facts(out, value)
    elif isinstance(value, Tasks):
        for kind in (value.active, value.standby, value.warmup):
            _put_tasks(out, kind)
    elif isinstance(value, CurrentTasks):
        out += INT32.pack(value.epoch) + INT32.pack(value.previous_epoch) + INT8.pack(value.state)
        for held in (value.assigned, value.revoking):
            _put_active(out, held.active)
            _put_tasks(out, held.standby)
            _put_tasks(out, held.warmup)
    else:
        out += INT32.pack(value.epoch)
        _put_array(out, value.subtopologies, _put_subtopology)
    put_tags(out, tags)
    return bytes(out)


def _epoch_tags(value: StreamsGroupEpoch) -> dict[int, bytes]:
    numbers = {0: value.validated_topology, 2: value.stored_description, 3: value.failed_description}
    tags = {tag: INT32.pack(number) for tag, number in numbers.items() if number != NO_TOPOLOGY}
    if value.assignment_configs is not None:
        configs = bytearray()
        _put_array(configs, value.assignment_configs, _put_pair)
        tags[1] = bytes(configs)
    return tags


def _put_array(out: bytearray, entries: Collection[_Entry], put: Callable[[bytearray, _Entry], None]) -> None:
    put_count(out, len(entries), flexible=True)
    for entry in entries:
        put(out, entry)


def _put_text(out: bytearray, text: str | None) -> None:
    put_string(out, text, flexible=True)


def _put_pair(out: bytearray, pair: tuple[str, str]) -> None:
    _put_text(out, pair[0])
    _put_text(out, pair[1])
    put_tags(out, NO_TAGS)


def _put_facts(out: bytearray, facts: MemberFacts) -> None:
    for text in (facts.instance_id, facts.rack_id, facts.client_id, facts.client_host):
        _put_text(out, text)
    out += INT32.pack(facts.rebalance_timeout_ms) + INT32.pack(facts.topology_epoch)
    _put_text(out, facts.process_id)
    if facts.endpoint is None:
        out += INT8.pack(-1)
    else:
        out += INT8.pack(1)
        _put_text(out, facts.endpoint.host)
        out += _UINT16.pack(facts.endpoint.port)
        put_tags(out, NO_TAGS)
    _put_array(out, [(name, facts.tags[name]) for name in in_text_order(facts.tags)], _put_pair)


def _put_tasks(out: bytearray, tasks: TaskSets) -> None:
    put_count(out, len(tasks), flexible=True)
    for subtopology in in_text_order(tasks):
        _put_text(out, subtopology)
        put_numbers(out, sorted(tasks[subtopology]))
        put_tags(out, NO_TAGS)


def _put_active(out: bytearray, tasks: TaskEpochs) -> None:
    put_count(out, len(tasks), flexible=True)
    for subtopology in in_text_order(tasks):
        held = sorted(tasks[subtopology].items())
        _put_text(out, subtopology)
        put_numbers(out, [number for number, _ in held])
        epochs = bytearray()
        put_numbers(epochs, [epoch for _, epoch in held])
        put_tags(out, {0: bytes(epochs)})


def _put_internal_topic(out: bytearray, topic: InternalTopic) -> None:
    _put_text(out, topic.name)
    out += INT32.pack(topic.partitions) + INT16.pack(topic.replication_factor)
    _put_array(out, topic.configs, _put_pair)
    put_tags(out, NO_TAGS)


def _put_copartition_group(out: bytearray, group: CopartitionGroup) -> None:
    for places in (group.source_topics, group.source_topic_regex, group.repartition_source_topics):
        put_numbers(out, places, INT16)
    put_tags(out, NO_TAGS)


def _put_subtopology(out: bytearray, part: Subtopology) -> None:
    _put_text(out, part.subtopology_id)
    _put_array(out, part.source_topics, _put_text)
    _put_array(out, part.source_topic_regex, _put_text)
    _put_array(out, part.changelogs, _put_internal_topic)
    _put_array(out, part.repartition_sinks, _put_text)
    _put_array(out, part.repartition_sources, _put_internal_topic)
    _put_array(out, part.copartition_groups, _put_copartition_group)
    put_tags(out, NO_TAGS)


# --- reading ----------------------------------------------------------------------------------------------------------


def decode_streams_change(key: bytes, value: bytes | None) -> tuple[str, StreamsGroupChange] | None:
    """Return the group and its change, or None for another kind of record. CorruptRecordError for invalid data."""
    found = decode_key(key, _KINDS, _NAMED, _WHAT)
    if found is None:
        return None
    kind, group_id, member_id = found
    return group_id, StreamsGroupChange(kind, member_id, None if value is None else _decode_value(kind, value))


def _decode_value(kind: StreamsChangeKind, data: bytes) -> StreamsChangeValue:
    return _DECODERS[kind](flexible_reader(data, _WHAT))


def _array(reader: FieldReader, read: Callable[[FieldReader], _Entry]) -> tuple[_Entry, ...]:
    return tuple([read(reader) for _ in range(reader.count())])


def _pair(reader: FieldReader) -> tuple[str, str]:
    pair = reader.string(), reader.string()
    reader.tags()
    return pair


def _group_epoch(reader: FieldReader) -> StreamsGroupEpoch:
    epoch, metadata_hash = reader.int32(), reader.int64()
    tags = reader.tags()
    configs = tags.get(1)
    return StreamsGroupEpoch(
        epoch,
        metadata_hash,
        tagged_number(tags, 0, INT32, NO_TOPOLOGY, _WHAT),
        None if configs is None or configs[:1] == b"\0" else _array(tag_reader(configs, _WHAT), _pair),
        tagged_number(tags, 2, INT32, NO_TOPOLOGY, _WHAT),
        tagged_number(tags, 3, INT32, NO_TOPOLOGY, _WHAT),
    )


def _target_epoch(reader: FieldReader) -> TargetEpoch:
    return TargetEpoch(reader.int32(), tagged_number(reader.tags(), 0, INT64, 0, _WHAT))


def _facts(reader: FieldReader) -> MemberFacts:
    facts = MemberFacts(
        instance_id=reader.nullable_string(),
        rack_id=reader.nullable_string(),
        client_id=reader.string(),
        client_host=reader.string(),
        rebalance_timeout_ms=reader.int32(),
        topology_epoch=reader.int32(),
        process_id=reader.string(),
        endpoint=_endpoint(reader),
        tags=dict(_array(reader, _pair)),
    )
    reader.tags()
    return facts


def _endpoint(reader: FieldReader) -> UserEndpoint | None:
    if reader.int8() < 0:
        return None
    endpoint = UserEndpoint(reader.string(), reader.int16() & 0xFFFF)
    reader.tags()
    return endpoint


def _tasks(reader: FieldReader) -> TaskSets:
    tasks: dict[str, frozenset[int]] = {}
    for _ in range(reader.count()):
        subtopology = reader.string()
        tasks[subtopology] = frozenset(read_numbers(reader))
        reader.tags()
    return tasks


def _active(reader: FieldReader, member_epoch: int) -> TaskEpochs:
    """Read tasks with their epochs; without epochs, the member's applies."""
    tasks: dict[str, dict[int, int]] = {}
    for _ in range(reader.count()):
        subtopology, numbers = reader.string(), read_numbers(reader)
        data = reader.tags().get(0)
        epochs = None if data is None or data[:1] == b"\0" else read_numbers(tag_reader(data, _WHAT))
        if epochs is None or len(epochs) != len(numbers):
            epochs = (member_epoch,) * len(numbers)
        tasks[subtopology] = dict(zip(numbers, epochs, strict=True))
    return tasks


def _target(reader: FieldReader) -> Tasks:
    target = Tasks(_tasks(reader), _tasks(reader), _tasks(reader))
    reader.tags()
    return target


def _current(reader: FieldReader) -> CurrentTasks:
    epoch, previous = reader.int32(), reader.int32()
    state = TaskState.of_record(reader.int8())
    assigned, revoking = [
        HeldTasks(_active(reader, epoch), _tasks(reader), _tasks(reader)) for _ in ("assigned", "revoking")
    ]
    reader.tags()
    return CurrentTasks(epoch, previous, state, assigned, revoking)


def _internal_topic(reader: FieldReader) -> InternalTopic:
    topic = InternalTopic(reader.string(), reader.int32(), reader.int16(), _array(reader, _pair))
    reader.tags()
    return topic


def _copartition_group(reader: FieldReader) -> CopartitionGroup:
    sources, regexes, repartition = [_array(reader, FieldReader.int16) for _ in range(3)]
    reader.tags()
    return CopartitionGroup(sources, regexes, repartition)


def _subtopology(reader: FieldReader) -> Subtopology:
    part = Subtopology(
        subtopology_id=reader.string(),
        source_topics=_array(reader, FieldReader.string),
        source_topic_regex=_array(reader, FieldReader.string),
        changelogs=_array(reader, _internal_topic),
        repartition_sinks=_array(reader, FieldReader.string),
        repartition_sources=_array(reader, _internal_topic),
        copartition_groups=_array(reader, _copartition_group),
    )
    reader.tags()
    return part


def _topology(reader: FieldReader) -> StreamsTopology:
    topology = StreamsTopology(reader.int32(), _array(reader, _subtopology))
    reader.tags()
    return topology


_DECODERS: Mapping[StreamsChangeKind, Callable[[FieldReader], StreamsChangeValue]] = {
    StreamsChangeKind.GROUP: _group_epoch,
    StreamsChangeKind.MEMBER: _facts,
    StreamsChangeKind.TARGET_EPOCH: _target_epoch,
    StreamsChangeKind.TARGET: _target,
    StreamsChangeKind.CURRENT: _current,
    StreamsChangeKind.TOPOLOGY: _topology,
}
