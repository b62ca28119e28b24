"""Differences that are meant, each with its reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from stratalog.records import Codec, iter_batches
from stratalog.wire.api_keys import ApiKey
from tests.comparison.requests import INT32_MAX

if TYPE_CHECKING:
    from tests.comparison.comparison import Difference

_ZERO_ID = UUID(int=0)
#: Where an answer of DescribeConfigs holds a key.
_CONFIG = re.compile(r"\.results\[(?P<resource>\d+)\]\.configs\[(?P<config>\d+)\]")
#: Where an answer of ListOffsets holds a partition.
_LISTED_OFFSET = re.compile(r"\.topics\[(?P<topic>\d+)\]\.partitions\[(?P<partition>\d+)\]")
#: Where an answer of DescribeLogDirs holds a topic.
_LOG_DIR_TOPIC = re.compile(r"\.results\[(?P<result>\d+)\]\.topics\[(?P<topic>\d+)\]")
#: Keys that say where a broker lies and what it is, and one that is set so that Kafka is quick.
_OF_THE_NODE = {
    "advertised.listeners",
    "broker.id",
    "controller.listener.names",
    "controller.quorum.append.linger.ms",
    "controller.quorum.voters",
    "listeners",
    "log.dir",
    "log.dirs",
    "process.roles",
    "remote.log.metadata.manager.class.name",
}
#: Types of DescribeConfigs.
_INT, _LONG = 3, 5


def _is_message_of_produce(difference: Difference) -> bool:
    messages = (".error_message", ".batch_index_error_message")
    return difference.request.key is ApiKey.PRODUCE and difference.where.endswith(messages)


def _is_in_a_java_exception(difference: Difference) -> bool:
    """Whether both refuse a dynamic setting for the same reason, which Kafka puts between names of its classes."""
    begin, end = "Invalid value org.apache.kafka.common.config.ConfigException: ", " for configuration Invalid dynamic"
    theirs = str(difference.theirs)
    return difference.where.endswith(".error_message") and theirs.startswith(f"{begin}{difference.ours}{end}")


def _is_long_segment(difference: Difference) -> bool:
    return difference.where.endswith(".config_type") and (difference.theirs, difference.ours) == (_INT, _LONG)


def _is_documentation(difference: Difference) -> bool:
    return difference.where.endswith(".documentation")


def _is_first_wrong_feature(difference: Difference) -> bool:
    key = difference.request.key
    return key is ApiKey.UPDATE_FEATURES and len(difference.request.fields["feature_updates"]) > 1


def _kafka_fails(difference: Difference) -> bool:
    """Where Kafka's own code fails over a wrong request, and ours says what is wrong with it."""
    fields, key = difference.request.fields, difference.request.key
    topics = fields.get("topics") or ()
    if difference.theirs == "/ by zero":
        return True
    match key:
        case ApiKey.METADATA:
            return any(topic.get("topic_id") == _ZERO_ID and topic["name"] is None for topic in topics)
        case ApiKey.DESCRIBE_TOPIC_PARTITIONS:
            cursor = fields["cursor"] or {"topic_name": "x", "partition_index": 0}
            return "" in (cursor["topic_name"], *(topic["name"] for topic in topics)) or (
                cursor["partition_index"] == INT32_MAX
            )
    return False


def _commits_to_no_partition(difference: Difference) -> bool:
    keys = {ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT, ApiKey.OFFSET_DELETE}
    topics = difference.request.fields.get("topics") or ()
    return difference.request.key in keys and any(not topic["partitions"] for topic in topics)


def _is_unknown_codec(difference: Difference) -> bool:
    return difference.request.key is ApiKey.PRODUCE and (difference.theirs, difference.ours) == (-1, 76)


def _is_of_impossible_acks(difference: Difference) -> bool:
    fields = difference.request.fields
    return difference.request.key is ApiKey.PRODUCE and fields["acks"] not in (-1, 0, 1)


def _never_answers(difference: Difference) -> bool:
    if difference.request.key is not ApiKey.PRODUCE or difference.theirs != "closed: no answer":
        return False
    topics = difference.request.fields["topic_data"]
    return any(entry["records"] is None for topic in topics for entry in topic["partition_data"])


def _is_compressed_by_another(difference: Difference) -> bool:
    """Whether it is about a batch that the broker has compressed, with the same records in it."""
    if difference.request.key is not ApiKey.FETCH or ".records[" not in difference.where:
        return False
    codecs, records = [], []
    for said in (difference.theirs, difference.ours):
        if not isinstance(said, str) or said.startswith("cut: "):
            return False
        (batch,) = iter_batches(bytes.fromhex(said.partition(": ")[2]))
        codecs.append(batch.codec)
        records.append([(each.offset, each.key, each.value, each.headers) for each in batch.records()])
    return codecs[0] is codecs[1] is not Codec.NONE and records[0] == records[1]


def _is_size_of_compressed(difference: Difference) -> bool:
    if difference.request.key is not ApiKey.DESCRIBE_LOG_DIRS or not difference.where.endswith(".partition_size"):
        return False
    found = _LOG_DIR_TOPIC.match(difference.where)
    assert found is not None, difference.where
    topic = difference.answers[0]["results"][int(found["result"])]["topics"][int(found["topic"])]["name"]
    return topic in difference.compressed and bool(difference.theirs and difference.ours)


def _looks_below_the_start(difference: Difference) -> bool:
    """Whether Kafka finds no record of a time in the first segment with a late enough one, below the log's start."""
    found = _LISTED_OFFSET.match(difference.where)
    if found is None or difference.request.key is not ApiKey.LIST_OFFSETS:
        return False
    topic = difference.answers[0]["topics"][int(found["topic"])]
    asked = {
        entry["timestamp"]
        for each in difference.request.fields["topics"]
        for entry in each["partitions"]
        if each["name"] == topic["name"]
    }
    listed = topic["partitions"][int(found["partition"])]
    is_missing = (listed["error_code"], listed["offset"]) == (0, -1)
    return is_missing and topic["name"] in difference.shortened and max(asked) >= 0


def _reassigns_twice(difference: Difference) -> bool:
    if difference.request.key is not ApiKey.ALTER_PARTITION_REASSIGNMENTS:
        return False
    topics = difference.request.fields["topics"]
    entries = [(topic["name"], entry["partition_index"]) for topic in topics for entry in topic["partitions"]]
    return len(set(entries)) < len(entries)


def _is_first_wrong_config(difference: Difference) -> bool:
    both_refuse = difference.where.endswith(".error_code") and bool(difference.theirs and difference.ours)
    if not (both_refuse or difference.where.endswith(".error_message")):
        return False
    entries = (*difference.request.fields.get("resources", ()), *(difference.request.fields.get("topics") or ()))
    return any(len(entry.get("configs", ())) > 1 for entry in entries)


def _config(difference: Difference) -> str:
    """The key that a difference of DescribeConfigs is about; "" for none."""
    found = _CONFIG.match(difference.where)
    if found is None or difference.request.key is not ApiKey.DESCRIBE_CONFIGS:
        return ""
    name: str = difference.answers[0]["results"][int(found["resource"])]["configs"][int(found["config"])]["name"]
    return name


def _is_of_this_node(difference: Difference) -> bool:
    return _config(difference) in _OF_THE_NODE


def _is_of_one_replica(difference: Difference) -> bool:
    name = _config(difference)
    return name.endswith((".replication.factor", ".min.isr")) and ".synonyms" in difference.where


def _is_read_at_the_start(difference: Difference) -> bool:
    return difference.where.endswith(".read_only") and (difference.theirs, difference.ours) == (False, True)


EXPLAINED: dict[str, Callable[[Difference], bool]] = {
    "Produce says why it refuses; Kafka leaves the message out for most errors": _is_message_of_produce,
    "the error for a refused dynamic setting does not name Kafka's exceptions": _is_in_a_java_exception,
    "KIP-1333 makes `segment.bytes` a long": _is_long_segment,
    "the documentation of settings is our own text": _is_documentation,
    "Kafka fails with an error of its own (UNKNOWN_SERVER_ERROR, or an overflow)": _kafka_fails,
    "which of several wrong configs Kafka names follows a hash map": _is_first_wrong_config,
    "which of several wrong features Kafka names follows a hash map": _is_first_wrong_feature,
    "a commit to a topic without partitions: Kafka names it in the answer or not": _commits_to_no_partition,
    "a codec that does not exist is UNSUPPORTED_COMPRESSION_TYPE, in Kafka UNKNOWN_SERVER_ERROR": _is_unknown_codec,
    "Produce with acks that do not exist, and another error: which of them is returned": _is_of_impossible_acks,
    "Produce with null for records: Kafka fails as it says so, and never answers": _never_answers,
    "a batch that the broker has compressed: the same records by another compressor": _is_compressed_by_another,
    "addresses, directories and roles are those of each broker": _is_of_this_node,
    "internal topics have one replica by default": _is_of_one_replica,
    "settings of TLS, SASL and listeners without a prefix are read at the start here": _is_read_at_the_start,
    "AlterPartitionReassignments with a partition twice: Kafka answers in the order of a hash map": _reassigns_twice,
    "ListOffsets of a time, after DeleteRecords: Kafka ends at a segment that is to be deleted": _looks_below_the_start,
    "a topic that the broker compresses: another compressor makes other sizes": _is_size_of_compressed,
}


def reason_for(difference: Difference) -> str | None:
    """Why a difference is meant; None for one that is not."""
    return next((reason for reason, applies in EXPLAINED.items() if applies(difference)), None)
