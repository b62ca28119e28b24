"""One of the two brokers: asks it, resolves what it chose by itself, and makes its answers comparable."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from stratalog.records import CONTROL_BIT
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.util import uuid_to_base64
from stratalog.wire.api_keys import ApiKey
from tests.broker.record_cases import NOW, UNKNOWN_ID
from tests.comparison.plain_reader import read_response
from tests.comparison.requests import UNKNOWN_PRODUCER_ID, Names, RecordsOf, Ref, Request
from tests.support.wire import Wire

#: What is of the machine or of the moment.
_HIDDEN = {
    "throttle_time",
    "port",
    "host",
    "cluster_id",
    "rack",
    "log_dir",
    "total_bytes",
    "usable_bytes",
    "last_timestamp",
    "transaction_start_time",
    "replica_directory_id",
    "last_fetch_timestamp",
    "last_caught_up_timestamp",
    "log_append_time",
    "api_keys",
    "supported_features",
    "finalized_features",
    "finalized_features_epoch",
}
#: DescribeQuorum: what these are depends on what was done before.
_OF_THE_QUORUM = {"leader_epoch", "high_watermark", "log_end_offset"}
#: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS: ask again.
_RETRIED = {14, 15, 16, 51}
_RETRIES_MAX = 100
#: Fields that say what an item of an answer is about.
_ABOUT = (
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "partition_index",
    "partition",
    "resource_type",
    "resource_name",
    "group_id",
    "member_id",
    "transactional_id",
    "producer_id",
    "key",
)
#: An answer that is not there by then will not come: no request waits for anything.
_TIMEOUT_S = 30.0
_UNSETTLED = {"PrepareCommit", "PrepareAbort", "PrepareEpochFence"}
_OF_A_ROUND = re.compile(r"r\d+-")
_CHANGES_METADATA = {
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
}
_CHANGES_TRANSACTIONS = {ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID}
_BARRIER = "barrier"
#: It bounds what a compressed batch may become, for which ours has a rule.
_CONFIGS_OF_KAFKA_ALONE = {"max.decompressed.message.bytes"}
#: Times from here on are of the broker's clock: those of records are of 2023.
_OF_NOW = NOW + 10_000_000_000
#: Attributes of a batch whose timestamps are the broker's: LogAppendTime, and a control batch.
_OF_THE_BROKER = 0x08 | CONTROL_BIT


class BrokerView:
    """Ask one broker, request by request. Not thread-safe."""

    def __init__(self, bootstrap_servers: str, name: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._name = name
        self._wire = Wire(bootstrap_servers, "comparison", timeout_s=_TIMEOUT_S)
        self._known: dict[Ref, Any] = {}
        self._names: dict[Any, str] = {}
        self._round = Names(0)
        self._barrier = 1_000_000_000

    def close(self) -> None:
        self._wire.close()

    def versions(self) -> dict[int, tuple[int, int]]:
        """The APIs that the broker says it has, with the first and last version of each."""
        answer = self._wire.call(ApiKey.API_VERSIONS, 4, client_software_name="x", client_software_version="1")
        return {int(api.api_key): (api.min_version, api.max_version) for api in answer.api_keys}

    def warm_up(self) -> None:
        """Wait until groups and transactions can be coordinated; create what `_wait_for_metadata` changes."""
        for key_type in (0, 1):
            ask = partial(self._wire.call, ApiKey.FIND_COORDINATOR, 3, key="k", key_type=key_type)
            self._until(ask, lambda answer: answer.error_code == 0, f"coordinates no keys of type {key_type}")
        shares = {"key_type": 2, "coordinator_keys": [f"g:{uuid_to_base64(UNKNOWN_ID)}:0"]}
        ask = partial(self._wire.call, ApiKey.FIND_COORDINATOR, 6, **shares)
        self._until(ask, lambda answer: answer.coordinators[0].error_code == 0, "coordinates no share groups")
        self._create([{"name": _BARRIER, "num_partitions": 1, "replication_factor": 1}])

    def begin(self, names: Names) -> None:
        """Create the topics of a round."""
        self._round = names
        self._known = {}
        self._names = {}
        self._create(
            [
                {
                    "name": topic.name,
                    "num_partitions": topic.partitions,
                    "replication_factor": 1,
                    "configs": [{"name": key, "value": value} for key, value in topic.configs.items()],
                }
                for topic in names.topics
            ]
        )
        self._wait_for_metadata()

    def end(self) -> None:
        """Delete the topics of the round and set the broker's configuration back."""
        topics = self._wire.call(ApiKey.METADATA, 9, topics=None).topics
        ours = [topic.name for topic in topics if topic.name.startswith(self._round.prefix) or len(topic.name) > 200]
        self._wire.call(ApiKey.DELETE_TOPICS, 5, topic_names=ours, timeout=30_000)
        resources = [{"resource_type": 4, "resource_name": name, "configs": ()} for name in ("", "1")]
        self._wire.call(ApiKey.ALTER_CONFIGS, 2, resources=resources, validate_only=False)
        self._wait_for_metadata()

    def _create(self, topics: list[dict[str, Any]]) -> None:
        answer = self._wire.call(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=30_000)
        assert [topic.error_code for topic in answer.topics] == [0] * len(topics), answer

    # --- asking -------------------------------------------------------------------------------------------------------

    def ask(self, request: Request) -> Any:
        """The answer, comparable with that of the other broker."""
        for attempt in range(_RETRIES_MAX):
            fields = self._resolved(request.fields)
            try:
                answer = self._call(request.key, request.version, **fields)
            except (ConnectionError, OSError) as error:
                self._wire.close()
                self._wire = Wire(self._bootstrap_servers, "comparison", timeout_s=_TIMEOUT_S)
                return f"closed: {'no answer' if isinstance(error, TimeoutError) else 'at once'}"
            if not _RETRIED & _codes(answer):
                break
            time.sleep(0.002 * (attempt + 1))
        self._learn(request, fields, answer)
        if request.key in _CHANGES_METADATA:
            self._wait_for_metadata()
        if request.key in _CHANGES_TRANSACTIONS:
            self._wait_for_transactions()
        return self._steady(request, answer)

    def _call(self, key: ApiKey, version: int, /, **fields: Any) -> dict[str, Any]:
        self._wire.send(key, version, **fields)
        return read_response(key, version, self._wire.receive_bytes())

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, Ref):
            return self._known.get(value, _UNRESOLVED[value.kind])
        if isinstance(value, RecordsOf):
            return build_batch(
                [Record(0, NOW, b"k", b"v")],
                producer_id=self._resolved(Ref("producer id", value.producer)),
                producer_epoch=self._resolved(Ref("producer epoch", value.producer)),
                base_sequence=value.sequence,
                is_transactional=value.is_transactional,
            )
        if isinstance(value, dict):
            return {key: self._resolved(item) for key, item in value.items()}
        if isinstance(value, tuple):
            return tuple(self._resolved(item) for item in value)
        return value

    def _learn(self, request: Request, fields: dict[str, Any], answer: Any) -> None:
        is_good = answer.get("error_code") == 0
        if request.key is ApiKey.INIT_PRODUCER_ID and is_good:
            self._learn_producer(fields["transactional_id"] or self._round.producers[-1], answer)
        elif request.key is ApiKey.END_TXN and is_good and answer.get("producer_id", -1) >= 0:
            self._learn_producer(fields["transactional_id"], answer)
        elif request.key is ApiKey.JOIN_GROUP and answer["member_id"]:
            self._set("member", fields["group_id"], answer["member_id"])
            if is_good:
                self._known[Ref("generation", fields["group_id"])] = answer["generation_id"]
        elif request.key is ApiKey.FETCH and answer.get("session_id"):
            self._known[Ref("session", "")] = answer["session_id"]

    def _learn_producer(self, owner: str, answer: Any) -> None:
        self._set("producer id", owner, answer["producer_id"])
        self._known[Ref("producer epoch", owner)] = answer["producer_epoch"]

    def _set(self, kind: str, name: str, value: Any) -> None:
        self._known[Ref(kind, name)] = value
        self._names[value] = f"{kind} of {name}"

    # --- waiting: Kafka answers before each of its parts knows --------------------------------------------------------

    def _wait_for_metadata(self) -> None:
        """Wait until what was changed before is in force: changes are applied in order, so a later one shows it."""
        resource = {"resource_type": 2, "resource_name": _BARRIER}
        for _ in range(2):  # the first may be seen together with what was before it
            self._barrier += 1
            value = str(self._barrier)
            configs = [{"name": "retention.ms", "config_operation": 0, "value": value}]
            changed = [{**resource, "configs": configs}]
            altered = self._wire.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=changed, validate_only=False)
            assert altered.responses[0].error_code == 0, f"{self._name} refuses a change: {altered}"
            wanted = [{**resource, "configuration_keys": ["retention.ms"]}]
            ask = partial(self._wire.call, ApiKey.DESCRIBE_CONFIGS, 4, resources=wanted)
            is_applied = partial(_has_value, value)
            self._until(ask, is_applied, "does not apply a change")
        for topic in self._wire.call(ApiKey.METADATA, 12, topics=None).topics:
            if topic.name.startswith(self._round.prefix):
                self._set("topic id", topic.name, topic.topic_id)

    def _wait_for_transactions(self) -> None:
        def ask() -> dict[str, str]:
            ids = self._round.transactional_ids
            found = self._call(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=ids)["transaction_states"]
            return {state["transactional_id"]: state["transaction_state"] for state in found}

        self._until(ask, lambda states: not _UNSETTLED & set(states.values()), "does not end transactions")

    def _until(self, ask: Callable[[], Any], is_reached: Callable[[Any], bool], failure: str) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while not is_reached(answer := ask()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._name} {failure} for {_TIMEOUT_S:.0f} s: {answer}")
            time.sleep(0.001)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _steady(self, request: Request, value: Any) -> Any:
        """The answer without what the broker chose, with its lists in a fixed order."""
        if isinstance(value, dict):
            if str(value.get("name", "")).startswith("__"):  # what was tried again is in there more often
                value = {key: item for key, item in value.items() if key != "partitions"}
            return {
                name: self._steady_field(request, name, item) for name, item in value.items() if name not in _HIDDEN
            }
        if isinstance(value, list):
            items = [self._steady(request, item) for item in value if not self._is_left_out(item)]
            return sorted(items, key=_place)
        return self._named(value)

    def _steady_field(self, request: Request, name: str, value: Any) -> Any:
        if name == "records" and isinstance(value, (bytes, bytearray)):
            return [self._steady_batch(batch) for batch in _batches(bytes(value))]
        if name == "producer_id":
            return self._names.get(value, value)
        if name == "timestamp" and isinstance(value, int) and value > _OF_NOW:
            return "now"
        if name == "session_id":
            return "a session" if value else 0
        if request.key is ApiKey.DESCRIBE_QUORUM and name in _OF_THE_QUORUM:
            return "of the moment"
        return self._steady(request, value)

    def _named(self, value: Any) -> Any:
        if isinstance(value, UUID):
            return self._names.get(value, _ID_NAMES.get(value, "an id"))
        if isinstance(value, str):
            if value in self._names:
                return self._names[value]
            for key, name in self._names.items():
                if isinstance(key, (str, UUID)) and str(key) in value:
                    value = value.replace(str(key), name)
                if isinstance(key, UUID):
                    value = value.replace(uuid_to_base64(key), name)  # as Kafka prints one
        return value

    def _is_left_out(self, item: Any) -> bool:
        """Whether it is a topic, group or transaction of another round, or a config that one broker alone has."""
        if not isinstance(item, dict):
            return False
        if item.get("name") in _CONFIGS_OF_KAFKA_ALONE:
            return True
        names = (item.get(field) for field in ("name", "topic", "group_id", "transactional_id", "resource_name"))
        return any(
            isinstance(name, str) and _OF_A_ROUND.match(name) and not name.startswith(self._round.prefix)
            for name in names
        )

    def _steady_batch(self, batch: bytes) -> str:
        if len(batch) < 61:
            if len(batch) > 22 and batch[22] & _OF_THE_BROKER:  # the checksum and what follows are of the moment
                batch = batch[:17] + bytes(4) + batch[21:27] + bytes(max(0, len(batch) - 27))
            return f"cut: {batch.hex()}"
        copy = bytearray(batch)
        (attributes,) = struct.unpack_from(">h", copy, 21)
        (producer_id,) = struct.unpack_from(">q", copy, 43)
        owner = self._names.get(producer_id, str(producer_id))
        if producer_id in self._names:
            copy[43:51] = bytes(8)
        if attributes & _OF_THE_BROKER:  # a control batch, or LogAppendTime: the broker's own times
            copy[27:43] = bytes(16)
        copy[17:21] = bytes(4)
        return f"{owner}: {copy.hex()}"


_UNRESOLVED: dict[str, Any] = {
    "topic id": UNKNOWN_ID,
    "producer id": UNKNOWN_PRODUCER_ID,
    "producer epoch": 0,
    "member": "not-a-member",
    "generation": 1,
    "session": 0,
}
_ID_NAMES = {UUID(int=0): "zero", UNKNOWN_ID: "unknown"}


def _batches(data: bytes) -> list[bytes]:
    found = []
    at = 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">i", data, at + 8)
        found.append(data[at : at + 12 + length])
        at += 12 + length
    if at < len(data):
        found.append(data[at:])
    return found


def _codes(value: Any) -> set[int]:
    """All error codes of an answer."""
    if isinstance(value, dict):
        own = {value["error_code"]} if "error_code" in value else set()
        return own.union(*(_codes(item) for item in value.values()))
    if isinstance(value, list):
        return set[int]().union(*(_codes(item) for item in value))
    return set()


def _has_value(value: str, described: Any) -> bool:
    """Whether the one config asked for has this value; there is none as long as Kafka does not know the topic."""
    return [config.value for config in described.results[0].configs] == [value]


def _place(item: Any) -> tuple[str, str]:
    """What a list is ordered by: what its items are about, so that one answer is compared with the same one."""
    about = [item.get(name) for name in _ABOUT] if isinstance(item, dict) else None
    return repr(about), repr(item)
