"""Requests about records, one after the other on a fresh broker, whose answers have to be Apache Kafka's.

`tests/golden/record_apis/answers.json` holds what Kafka 4.4.0 answered; `tests.golden.record_apis.make` writes it.
"""

from __future__ import annotations

import dataclasses
import datetime
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from tests.support.wire import Wire

from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec
from stratalog.records.record import Record
from stratalog.util.checksum import crc32c
from stratalog.wire.api_keys import ApiKey

NOW = 1_700_000_000_000
#: Kafka's answers name brokers by what they listen on; these are put in their place.
HIDDEN = {"port", "host", "cluster_id", "throttle_time", "rack"}
UNKNOWN_ID = UUID("7f5d3c6e-0000-4000-8000-000000000001")

TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "empty": {},
    "small": {"max.message.bytes": "200"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "compacted": {"cleanup.policy": "compact"},
    "zstd": {"compression.type": "zstd"},
    "replicated": {"min.insync.replicas": "2"},
    "past": {"message.timestamp.before.max.ms": "1000"},
}


def batch(*values: bytes | None, key: bytes | None = b"k", **options: Any) -> bytes:
    return build_batch([Record(n, NOW + n, key, value) for n, value in enumerate(values)], **options)


def changed(records: bytes, position: int, new: bytes, *, valid_crc: bool = True) -> bytes:
    copy = bytearray(records)
    copy[position : position + len(new)] = new
    if valid_crc:
        struct.pack_into(">I", copy, 17, crc32c(memoryview(copy)[21:]))
    return bytes(copy)


#: Where two brokers may put a time of their own into the answer.
_FUTURE = int(time.time() * 1000) + 100 * 24 * 3600 * 1000

RECORDS: dict[str, bytes | None] = {
    "one": batch(b"v"),
    "three": batch(b"a", b"b", b"c"),
    **{f"codec {codec.name.lower()}": batch(b"v" * 100, codec=codec) for codec in Codec},
    "null key and value": batch(None, key=None),
    "wrong CRC": changed(batch(b"v"), 17, b"\1\2\3\4", valid_crc=False),
    "flipped bit": changed(batch(b"value" * 10), 90, b"\0", valid_crc=False),
    "cut off": batch(b"value" * 10)[:-1],
    "length too short": changed(batch(b"v"), 8, struct.pack(">i", 3)),
    "a few bytes": b"abc",
    "no bytes": b"",
    "two batches": batch(b"a") + batch(b"b"),
    "control batch": changed(batch(b"v"), 22, b"\x20"),
    "count of zero": changed(batch(b"v"), 57, struct.pack(">i", 0)),
    "count too large": changed(batch(b"v"), 57, struct.pack(">i", 2)),
    "last offset delta too large": changed(batch(b"v"), 23, struct.pack(">i", 5)),
    "codec 7": changed(batch(b"v"), 22, b"\x07"),
    "in the future": build_batch([Record(0, _FUTURE, b"k", b"v")]),
    "no timestamp": build_batch([Record(0, -1, b"k", b"v")]),
    "producer id without sequence": batch(b"v", producer_id=5, producer_epoch=0, base_sequence=-1),
    "large": batch(b"v" * 1_100_000),
    "stray byte": batch(b"v") + b"\0",
    "stray bytes": batch(b"v") + b"stray bytes behind the batch",
    "zeros behind": batch(b"v") + bytes(61),
    "61 zeros": bytes(61),
    "17 zeros": bytes(17),
    "half a batch behind": batch(b"v") + batch(b"v")[:40],
    "length beyond the data": changed(batch(b"v"), 8, struct.pack(">i", 5_000)),
    "negative length": changed(batch(b"v"), 8, struct.pack(">i", -1)),
    "header alone": batch(b"v")[:61],
    "record length beyond": changed(batch(b"v"), 61, b"\x7e"),
    "record length too short": changed(batch(b"value"), 61, b"\x08"),
    "value length beyond": changed(batch(b"value"), 66, b"\x7e"),
    "header count beyond": changed(batch(b"value"), 72, b"\x7e"),
    **{
        f"junk as {codec.name.lower()}": changed(batch(b"no such thing" * 9), 22, bytes([codec.value]))
        for codec in Codec
        if codec
    },
    **{
        f"cut in {codec.name.lower()}": changed(
            batch(b"v" * 100, codec=codec)[:-9],
            8,
            struct.pack(">i", len(batch(b"v" * 100, codec=codec)) - 9 - 12),
        )
        for codec in Codec
        if codec
    },
}


class Asker:
    """Asks one broker and notes the answers. A connection that the broker closes is an answer too."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._wire = Wire(bootstrap_servers)
        self.topic_ids: dict[str, UUID] = {}

    def call(self, key: ApiKey, version: int, /, **fields: Any) -> Any:
        return self._wire.call(key, version, **fields)

    def ask(self, key: ApiKey, version: int, /, **fields: Any) -> Any:
        try:
            return self._plain(self._wire.call(key, version, **fields))
        except (ConnectionError, OSError) as error:
            self._wire.close()
            self._wire = Wire(self._bootstrap_servers)
            return f"closed: {type(error).__name__ == 'TimeoutError'}"

    def close(self) -> None:
        self._wire.close()

    def _plain(self, value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            return {
                field.name: self._plain(getattr(value, field.name))
                for field in dataclasses.fields(value)
                if field.name not in HIDDEN
            }
        if isinstance(value, tuple):
            return [self._plain(item) for item in value]
        if isinstance(value, bytes):
            return value.hex() if len(value) < 2000 else f"{len(value)} bytes, {value[:80].hex()}..."
        if isinstance(value, datetime.timedelta):
            return round(value.total_seconds() * 1000)
        if isinstance(value, datetime.datetime):
            return "a time"
        if isinstance(value, UUID):
            names = {topic_id: name for name, topic_id in self.topic_ids.items()}
            return f"id of {names.get(value, 'nobody')}"
        return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def run(bootstrap_servers: str) -> dict[str, Any]:
    """All answers by name."""
    asker = Asker(bootstrap_servers)
    try:
        create_topics(asker)
        return {name: ask() for name, ask in _cases(asker)}
    finally:
        asker.close()


def create_topics(asker: Asker) -> None:
    topics = [
        {
            "name": name,
            "num_partitions": 2,
            "replication_factor": 1,
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
        for name, configs in TOPICS.items()
    ]
    created = asker.call(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=30_000).topics
    assert [topic.error_code for topic in created] == [0] * len(TOPICS)
    asker.topic_ids = {topic.name: topic.topic_id for topic in created}
    deadline = time.monotonic() + 60
    while True:  # Kafka's brokers learn of a topic a moment after its creation was answered
        found = asker.call(ApiKey.METADATA, 12, topics=[{"name": name} for name in TOPICS]).topics
        offsets = asker.call(
            ApiKey.LIST_OFFSETS,
            1,
            replica_id=-1,
            topics=[
                {"name": name, "partitions": [{"partition_index": n, "timestamp": -1} for n in (0, 1)]}
                for name in TOPICS
            ],
        ).topics
        if all(topic.error_code == 0 and topic.partitions[1].leader_id >= 0 for topic in found) and all(
            partition.error_code == 0 for topic in offsets for partition in topic.partitions
        ):
            return
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _cases(asker: Asker) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield from _list_offsets_cases(asker, "empty")
    yield from _produce_cases(asker)
    yield from _fetch_cases(asker)
    yield from _list_offsets_cases(asker, "plain")
    yield from _other_cases(asker)
    yield from _session_cases(asker)
    yield from _requested_topic_cases(asker)


# --- Produce ----------------------------------------------------------------------------------------------------------


def _produce(
    asker: Asker, topic: str, records: bytes | None, *, version: int = 12, partition: int = 0, **fields: Any
) -> Callable[[], Any]:
    def ask() -> Any:
        key: dict[str, Any] = {"name": topic}
        if version >= 13:
            key = {"topic_id": asker.topic_ids.get(topic, UNKNOWN_ID)}
        topics = [{**key, "partition_data": [{"index": partition, "records": records}]}]
        response = asker.ask(ApiKey.PRODUCE, version, **{"acks": -1, "timeout": 5000, **fields, "topic_data": topics})
        if isinstance(response, dict):  # messages are worded by each broker
            for answer in response["responses"]:
                for done in answer["partition_responses"]:
                    done.pop("error_message", None)
                    for error in done.get("record_errors", []):
                        error.pop("batch_index_error_message", None)
        return response

    return ask


def _produce_cases(asker: Asker) -> Iterator[tuple[str, Callable[[], Any]]]:
    for version in range(3, 14):
        yield f"Produce v{version}: one", _produce(asker, "plain", RECORDS["one"], version=version)
    for name, records in RECORDS.items():
        for version in (3, 8, 12):
            yield f"Produce v{version}: {name}", _produce(asker, "plain", records, version=version)
    for topic in TOPICS:
        if topic != "empty":
            for name in ("one", "three", "null key and value", "in the future", "no timestamp", "codec gzip"):
                yield f"Produce to {topic}: {name}", _produce(asker, topic, RECORDS[name], partition=1)
    large = batch(b"v" * 150)
    yield "Produce to small: too large", _produce(asker, "small", large)
    yield "Produce to an unknown topic", _produce(asker, "nobody-knows", RECORDS["one"])
    yield "Produce to an unknown topic id", _produce(asker, "nobody-knows", RECORDS["one"], version=13)
    yield "Produce to an unknown partition", _produce(asker, "plain", RECORDS["one"], partition=7)
    for acks in (1, 2, -2):
        yield f"Produce with acks {acks}", _produce(asker, "plain", RECORDS["one"], acks=acks)
    for step, (sequence, epoch) in enumerate([(0, 0), (0, 0), (2, 0), (1, 0), (0, 0), (1, 0), (0, 1), (5, 0), (1, 1)]):
        records = batch(b"v", producer_id=4711, producer_epoch=epoch, base_sequence=sequence)
        yield (
            f"Produce step {step}: sequence {sequence} of epoch {epoch}",
            _produce(asker, "zstd", records),
        )

    for name, pair in {
        "zstd last": ("one", "codec zstd"),
        "zstd first": ("codec zstd", "one"),
        "both good": ("one", "three"),
        "both zstd": ("codec zstd", "codec zstd"),
        "zstd between": ("one", "codec zstd", "three"),
    }.items():
        for topic, partition in (("plain", 0), ("plain", 9)):
            yield f"Produce twice to {topic}-{partition}: {name}", _produce_all(asker, topic, partition, pair)
        yield f"Produced twice to plain: {name}", _fetch(asker, "plain", entry={"partition_max_bytes": 10**6})


def _produce_all(asker: Asker, topic: str, partition: int, names: Sequence[str]) -> Callable[[], Any]:
    """One request with several batches for the same partition, in a version that does not take zstd."""
    entries = [{"index": partition, "records": RECORDS[name]} for name in names]
    wanted = [{"name": topic, "partition_data": entries}]
    return lambda: asker.ask(ApiKey.PRODUCE, 6, acks=-1, timeout=5000, topic_data=wanted)


# --- Fetch ------------------------------------------------------------------------------------------------------------


def _fetch(
    asker: Asker,
    topic: str,
    offset: int = 0,
    *,
    version: int = 12,
    partition: int = 0,
    entry: dict[str, Any] | None = None,
    **fields: Any,
) -> Callable[[], Any]:
    def ask() -> Any:
        key: dict[str, Any] = {"topic": topic}
        if version >= 13:
            key = {"topic_id": asker.topic_ids.get(topic, UNKNOWN_ID)}
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 300, **(entry or {})}
        defaults: dict[str, Any] = {"max_wait": 0, "min_bytes": 1, "max_bytes": 10_000_000}
        if version < 15:
            defaults["replica_id"] = -1
        if version >= 7:
            defaults["session_epoch"] = -1
        return asker.ask(ApiKey.FETCH, version, **{**defaults, **fields, "topics": [{**key, "partitions": [wanted]}]})

    return ask


def _fetch_all(
    asker: Asker, wanted: Sequence[tuple[str, int, int]], *, version: int = 12, **fields: Any
) -> Callable[[], Any]:
    """Several partitions: topic, number and bytes of each, from offset 1 on."""

    def ask() -> Any:
        topics = []
        for topic, partition, limit in wanted:
            ids = asker.topic_ids
            key = {"topic_id": ids.get(topic, UNKNOWN_ID)} if version >= 13 else {"topic": topic}
            entry = {"partition": partition, "fetch_offset": 1, "partition_max_bytes": limit}
            topics.append({**key, "partitions": [entry]})
        defaults = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 10_000_000, "session_epoch": -1}
        return asker.ask(ApiKey.FETCH, version, **{**defaults, **fields, "topics": topics})

    return ask


def _fetch_cases(asker: Asker) -> Iterator[tuple[str, Callable[[], Any]]]:
    for version in range(4, 19):
        yield f"Fetch v{version}", _fetch(asker, "plain", 1, version=version)
        yield f"Fetch v{version}: out of range", _fetch(asker, "plain", 10_000, version=version)
        yield f"Fetch v{version}: nothing there", _fetch(asker, "empty", version=version)
    for offset in (-1, 0, 5, 10**12):
        yield f"Fetch at {offset}", _fetch(asker, "plain", offset)
        yield f"Fetch at {offset}, committed", _fetch(asker, "plain", offset, isolation_level=1)
    yield "Fetch of an unknown topic", _fetch(asker, "nobody-knows")
    yield "Fetch of an unknown topic id", _fetch(asker, "nobody-knows", version=13)
    yield "Fetch of an unknown partition", _fetch(asker, "plain", partition=9)
    for limit in (0, 1, 69, 70, 139, 140, 250):
        yield (
            f"Fetch of {limit} bytes a partition",
            _fetch(asker, "plain", entry={"partition_max_bytes": limit}),
        )
        yield f"Fetch of {limit} bytes", _fetch(asker, "plain", max_bytes=limit)
    for epoch in (0, 1):
        yield (
            f"Fetch with current epoch {epoch}",
            _fetch(asker, "plain", entry={"current_leader_epoch": epoch}),
        )
        yield f"Fetch with last epoch {epoch}", _fetch(asker, "plain", 1, entry={"last_fetched_epoch": epoch})
    for limit in (0, 1, 70, 10_000):
        for total in (0, 70, 10_000):
            yield (
                f"Fetch of {limit} bytes behind another partition, {total} in all, committed",
                _fetch_all(asker, [("compacted", 1, 300), ("plain", 0, limit)], max_bytes=total, isolation_level=1),
            )
    known, unknown = "plain", "nobody-knows"
    asked = [(unknown, 1, 300), (known, 9, 300), (unknown, 0, 300), (known, 0, 300), (unknown, 2, 300), (known, 8, 300)]
    for replica_id in (-1, 7):
        yield (
            f"Fetch of what is there and what is not, by {replica_id}",
            _fetch_all(asker, asked, version=13, replica_id=replica_id),
        )
    yield "Fetch by a broker", _fetch(asker, "plain", replica_id=7)
    yield "Fetch of an unknown session", _fetch(asker, "plain", session_id=12_345, session_epoch=2)


# --- the others -------------------------------------------------------------------------------------------------------


def _list_offsets_cases(asker: Asker, topic: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    def ask(version: int, *timestamps: int, partition: int = 0, **entry: Any) -> Callable[[], Any]:
        entries = [{"partition_index": partition, "timestamp": timestamp, **entry} for timestamp in timestamps]
        return lambda: asker.ask(
            ApiKey.LIST_OFFSETS, version, replica_id=-1, topics=[{"name": topic, "partitions": entries}]
        )

    for version in range(1, 12):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, NOW - 1, NOW, NOW + 1, NOW + 10):
            yield f"ListOffsets v{version} of {topic} at {timestamp}", ask(version, timestamp)
    yield f"ListOffsets of {topic} twice", ask(9, -1, -2)
    yield f"ListOffsets of {topic}-9", ask(9, -1, partition=9)
    for epoch in (0, 1):
        yield f"ListOffsets of {topic} in epoch {epoch}", ask(9, -1, current_leader_epoch=epoch)


def _other_cases(asker: Asker) -> Iterator[tuple[str, Callable[[], Any]]]:
    def epoch_end(version: int, partition: int, current: int, epoch: int) -> Callable[[], Any]:
        entry = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
        fields = {"replica_id": -1} if version >= 3 else {}
        return lambda: asker.ask(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            version,
            topics=[{"topic": "plain", "partitions": [entry]}],
            **fields,
        )

    for version in (2, 3, 4):
        for partition, current, epoch in (
            (0, -1, 0),
            (0, -1, 1),
            (0, 0, 0),
            (0, 1, 0),
            (0, -1, -1),
            (9, -1, 0),
        ):
            yield (
                f"OffsetForLeaderEpoch v{version}: {partition}, {current}, {epoch}",
                epoch_end(version, partition, current, epoch),
            )

    def metadata(version: int, topics: Any, **fields: Any) -> Callable[[], Any]:
        return lambda: asker.ask(ApiKey.METADATA, version, topics=topics, **fields)

    for version in range(14):
        yield f"Metadata v{version}", metadata(version, [{"name": "plain"}])
    closed_fields = {"allow_auto_topic_creation": False}
    for name in ("nobody-knows", "", "a b", "..", "x" * 250):
        yield f"Metadata of {name!r:.20}", metadata(12, [{"name": name}], **closed_fields)
    yield "Metadata of an unknown id", metadata(12, [{"name": None, "topic_id": UNKNOWN_ID}], **closed_fields)
    yield (
        "Metadata of a known id",
        lambda: metadata(12, [{"name": None, "topic_id": asker.topic_ids["plain"]}], **closed_fields)(),
    )
    yield "Metadata of nothing", metadata(12, [], **closed_fields)
    yield (
        "Metadata with operations",
        metadata(
            8,
            [{"name": "plain"}],
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        ),
    )
    for name, release in (("", "1"), ("a b", "1"), ("ok", ""), ("ok", "1.0")):
        yield (
            f"ApiVersions of {name!r} {release!r}",
            lambda name=name, release=release: int(  # type: ignore[misc]
                asker.call(
                    ApiKey.API_VERSIONS, 3, client_software_name=name, client_software_version=release
                ).error_code
            ),
        )


# --- fetch sessions ---------------------------------------------------------------------------------------------------


class _SessionClient:
    """Fetches in a session; answers name the session instead of its id, which is chance."""

    def __init__(self, asker: Asker, version: int) -> None:
        self._asker = asker
        self.version = version
        self.session_id = 0

    def ask(
        self,
        epoch: int,
        *partitions: tuple[str, int, int],
        forget: tuple[tuple[str, int], ...] = (),
        version: int | None = None,
        opens: bool = False,
    ) -> Any:
        """Fetch (topic, partition, offset); `opens` begins the session that later requests are of."""
        version = version or self.version
        fields: dict[str, Any] = {} if version >= 15 else {"replica_id": -1}
        answer = self._asker.ask(
            ApiKey.FETCH,
            version,
            max_wait=0,
            min_bytes=1,
            max_bytes=10_000_000,
            session_id=0 if opens else self.session_id,
            session_epoch=epoch,
            topics=[
                {
                    **self._key(topic, version, "topic"),
                    "partitions": [{"partition": partition, "fetch_offset": offset, "partition_max_bytes": 300}],
                }
                for topic, partition, offset in partitions
            ],
            forgotten_topics_data=[
                {**self._key(topic, version, "topic"), "partitions": [partition]} for topic, partition in forget
            ],
            **fields,
        )
        if isinstance(answer, dict):
            reported = answer["session_id"]
            if opens:
                self.session_id = reported
            answer["session_id"] = {0: "none", self.session_id: "the session"}.get(reported, "another session")
        return answer

    def _key(self, topic: str, version: int, name: str) -> dict[str, Any]:
        return {"topic_id": self._asker.topic_ids.get(topic, UNKNOWN_ID)} if version >= 13 else {name: topic}


def _session_cases(asker: Asker) -> Iterator[tuple[str, Callable[[], Any]]]:
    for version in (7, 11, 12, 13, 18):
        client = _SessionClient(asker, version)
        ask = partial(partial, client.ask)
        other_family = 12 if version >= 13 else 13
        steps: list[tuple[str, Callable[[], Any]]] = [
            ("opened", ask(0, ("plain", 0, 0), ("empty", 0, 0), opens=True)),
            ("nothing new but records", ask(1)),
            ("another offset", ask(2, ("plain", 0, 1))),
            ("one forgotten", ask(3, forget=(("plain", 0),))),
            ("two added, one unknown", ask(4, ("stamped", 9, 0), ("compacted", 1, 0), ("plain", 1, 0))),
            ("records go to the end", ask(5)),
            ("an unknown topic", ask(6, ("nobody-knows", 0, 0), forget=(("stamped", 9),))),
            ("an epoch of before", ask(3)),
            ("an epoch that is not yet", ask(9)),
            ("topics in the other way", ask(7, version=other_family)),
            ("after that", ask(7)),
            ("out of range", ask(8, ("plain", 1, 10_000))),
            ("in range again", ask(9, ("plain", 1, 0))),
            (
                "all forgotten",
                ask(
                    10,
                    forget=(
                        ("plain", 1),
                        ("compacted", 1),
                        ("stamped", 9),
                        ("nobody-knows", 0),
                        ("empty", 0),
                        ("empty", 1),
                    ),
                ),
            ),
            ("after all was forgotten", ask(11)),
            ("opened with nothing", ask(0, opens=True)),
            ("after that", ask(1, ("plain", 0, 0))),
            ("opened twice the same", ask(0, ("plain", 0, 0), ("plain", 0, 1), opens=True)),
            ("the same twice", ask(1, ("empty", 0, 0), ("empty", 0, 0))),
            ("closed", ask(-1, ("plain", 0, 0))),
            ("after it was closed", ask(2)),
            ("opened again", ask(0, ("empty", 0, 0), opens=True)),
            ("still empty", ask(1)),
            ("records came", partial(_ask_after_a_record, asker, ask(2))),
            ("read to the end", partial(_ask_at_the_end, asker, client)),
            ("still the same", ask(4)),
            ("a full one in its place", ask(0, ("empty", 1, 0))),
            ("the one before is gone", ask(5)),
        ]
        for number, (name, step) in enumerate(steps):
            yield f"Fetch session v{version}, {number}: {name}", step


def _ask_after_a_record(asker: Asker, ask: Callable[[], Any]) -> Any:
    _produce(asker, "empty", batch(b"v"))()
    return ask()


def _ask_at_the_end(asker: Asker, client: _SessionClient) -> Any:
    return client.ask(3, ("empty", 0, _end(asker)))


def _end(asker: Asker) -> int:
    entry = {"partition_index": 0, "timestamp": -1}
    found = asker.call(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=[{"name": "empty", "partitions": [entry]}])
    return int(found.topics[0].partitions[0].offset)


def _requested_topic_cases(asker: Asker) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Topics that Metadata has created: unknown at first, there a moment later."""

    def ask(version: int, name: str) -> Any:
        return asker.ask(ApiKey.METADATA, version, topics=[{"name": name}])

    def created(version: int, name: str) -> Any:
        deadline = time.monotonic() + 60
        while True:
            answer = ask(version, name)
            (topic,) = answer["topics"]
            if topic["error_code"] == 0 and topic["partitions"][0]["leader_id"] >= 0:
                return answer
            assert time.monotonic() < deadline, answer
            time.sleep(0.02)

    for version in range(14):
        name = f"requested.{version}"
        yield f"Metadata v{version} of a topic to be created", partial(ask, version, name)
        yield f"Metadata v{version} of a topic that was requested", partial(created, version, name)
    for name in ("requested_1", "", "a b", "..", "x" * 250):
        yield f"Metadata of {name!r:.20} that cannot be created", partial(ask, 12, name)
    # creations are in the order of requests: after this one the name above was refused
    yield "Metadata of a topic after a refused one", partial(created, 12, "requested.last")
    yield "Metadata of 'requested_1' again", partial(ask, 12, "requested_1")
