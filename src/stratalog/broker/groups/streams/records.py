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

from stratalog.broker.groups.member_records import (
    NUMBERS,
    TARGET_EPOCH,
    GroupRecords,
    in_text_order,
    put_epochs,
    read_epochs,
)
from stratalog.broker.groups.streams.values import (
    NO_TOPOLOGY,
    CopartitionGroup,
    CurrentTasks,
    HeldTasks,
    InternalTopic,
    MemberFacts,
    StreamsChangeKind,
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
from stratalog.wire import (
    INT8,
    INT32,
    NULLABLE_STRING,
    NUM16,
    NUM32,
    NUM64,
    STRING,
    FieldReader,
    Form,
    TaggedForm,
    array,
    converted,
    ended,
    mapping,
    nullable,
    nullable_array,
    put_tags,
    struct,
)


def _put_active(out: bytearray, tasks: TaskEpochs) -> None:
    put_epochs(out, STRING, {each: dict(sorted(tasks[each].items())) for each in in_text_order(tasks)})


def _put_current(out: bytearray, current: CurrentTasks) -> None:
    out += INT32.pack(current.epoch) + INT32.pack(current.previous_epoch) + INT8.pack(current.state)
    for held in (current.assigned, current.revoking):
        _put_active(out, held.active)
        _TASKS.put(out, held.standby)
        _TASKS.put(out, held.warmup)
    put_tags(out, {})


def _read_current(reader: FieldReader) -> CurrentTasks:
    epoch, previous = reader.int32(), reader.int32()
    state = TaskState(reader.int8())
    assigned, revoking = [
        HeldTasks(read_epochs(reader, STRING, epoch), _TASKS.read(reader), _TASKS.read(reader))
        for _ in ("assigned", "revoking")
    ]
    reader.tags()
    return CurrentTasks(epoch, previous, state, assigned, revoking)


def _put_pair(out: bytearray, pair: tuple[str, str]) -> None:
    STRING.put(out, pair[0])
    STRING.put(out, pair[1])


_PORT = converted(NUM16, lambda port: (port ^ 0x8000) - 0x8000, lambda number: number & 0xFFFF)
_PAIR: Form[tuple[str, str]] = ended(Form(_put_pair, lambda reader: (reader.string(), reader.string())))
_PAIRS = array(_PAIR)
_NAMES = array(STRING)
_TASKS: Form[TaskSets] = mapping(STRING, ended(converted(NUMBERS, sorted, frozenset)), in_text_order)
_ALL_TASKS = struct(Tasks, active=_TASKS, standby=_TASKS, warmup=_TASKS)
_FACTS = struct(
    MemberFacts,
    instance_id=NULLABLE_STRING,
    rack_id=NULLABLE_STRING,
    client_id=STRING,
    client_host=STRING,
    rebalance_timeout_ms=NUM32,
    topology_epoch=NUM32,
    process_id=STRING,
    endpoint=nullable(struct(UserEndpoint, host=STRING, port=_PORT), null=-1),
    tags=mapping(STRING, ended(STRING), in_text_order),
)
_INTERNAL_TOPIC = struct(InternalTopic, name=STRING, partitions=NUM32, replication_factor=NUM16, configs=_PAIRS)
_PLACES = array(NUM16)
_COPARTITION_GROUP = struct(
    CopartitionGroup, source_topics=_PLACES, source_topic_regex=_PLACES, repartition_source_topics=_PLACES
)
_SUBTOPOLOGY = struct(
    Subtopology,
    subtopology_id=STRING,
    source_topics=_NAMES,
    source_topic_regex=_NAMES,
    changelogs=array(_INTERNAL_TOPIC),
    repartition_sinks=_NAMES,
    repartition_sources=array(_INTERNAL_TOPIC),
    copartition_groups=array(_COPARTITION_GROUP),
)
_GROUP_EPOCH = struct(
    StreamsGroupEpoch,
    epoch=NUM32,
    metadata_hash=NUM64,
    validated_topology=TaggedForm(0, NUM32, NO_TOPOLOGY),
    assignment_configs=TaggedForm(1, nullable_array(_PAIR), None),
    stored_description=TaggedForm(2, NUM32, NO_TOPOLOGY),
    failed_description=TaggedForm(3, NUM32, NO_TOPOLOGY),
)
_RECORDS = GroupRecords(
    "streams",
    StreamsGroupChange,
    forms={
        StreamsChangeKind.GROUP: _GROUP_EPOCH,
        StreamsChangeKind.MEMBER: _FACTS,
        StreamsChangeKind.TARGET_EPOCH: TARGET_EPOCH,
        StreamsChangeKind.TARGET: _ALL_TASKS,
        StreamsChangeKind.CURRENT: Form(_put_current, _read_current),
        StreamsChangeKind.TOPOLOGY: struct(StreamsTopology, epoch=NUM32, subtopologies=array(_SUBTOPOLOGY)),
    },
    named={StreamsChangeKind.MEMBER, StreamsChangeKind.TARGET, StreamsChangeKind.CURRENT},
)
encode_streams_change = _RECORDS.encode
decode_streams_change = _RECORDS.decode
