"""Clients with large requests that are in order, in a process of their own: what a quiet producer has beside it.

    python -m benchmarks.support.neighbours NAME HOST:PORT

Prints a line when it is at work; then a line of JSON: how many requests it sent, and the seconds that they took.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from tests.support.wire import Wire

from stratalog.wire import ApiKey

TOPICS = 2000
PARTITIONS_EACH = 5
MEMBERS = 2000
GROUPS = 1000
PARTS = 5000
TIMEOUT_S = 600.0
TIMEOUT_MS = 600_000


class Neighbour:
    """The broker's address, and what was done."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.done = 0
        self.seconds = 0.0

    def connect(self) -> Wire:
        return Wire(self.address, timeout_s=TIMEOUT_S)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """What is measured; all before is preparation."""
        print("begun", flush=True)
        begun = time.perf_counter()
        yield
        self.seconds = time.perf_counter() - begun


def topic_names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def create(client: Wire, names: list[str], partitions: int) -> None:
    """Create topics. RuntimeError for one that is not made."""
    topics = [{"name": name, "num_partitions": partitions, "replication_factor": 1} for name in names]
    answer = client.call(ApiKey.CREATE_TOPICS, 5, topics=topics, timeout=TIMEOUT_MS)
    _check(each.error_code for each in answer.topics)


def delete(client: Wire, names: list[str]) -> None:
    answer = client.call(ApiKey.DELETE_TOPICS, 5, topic_names=names, timeout=TIMEOUT_MS)
    _check(each.error_code for each in answer.responses)


def _check(codes: Iterator[object]) -> None:
    wrong = next((code for code in codes if int(code)), None)  # type: ignore[call-overload]
    if wrong is not None:
        raise RuntimeError(f"answered {wrong!r}")


def create_topics(neighbour: Neighbour) -> None:
    """Create 500 topics of two partitions with one request."""
    with neighbour.connect() as client, neighbour.at_work():
        create(client, topic_names("many", 500), 2)
        neighbour.done = 1


def delete_topics(neighbour: Neighbour) -> None:
    """Delete them again."""
    with neighbour.connect() as client, neighbour.at_work():
        delete(client, topic_names("many", 500))
        neighbour.done = 1


def create_wide(neighbour: Neighbour) -> None:
    """Create one topic of 1,000 partitions."""
    with neighbour.connect() as client, neighbour.at_work():
        create(client, ["wide"], 1000)
        neighbour.done = 1


def delete_wide(neighbour: Neighbour) -> None:
    """Delete it again."""
    with neighbour.connect() as client, neighbour.at_work():
        delete(client, ["wide"])
        neighbour.done = 1


def metadata(neighbour: Neighbour) -> None:
    """Ask for all topics."""
    with neighbour.connect() as client:
        frame = client.frame(ApiKey.METADATA, 12, topics=None)
        client.send_bytes(frame)
        client.receive_bytes()
        with neighbour.at_work():
            for _ in range(50):
                client.send_bytes(frame)
                client.receive_bytes()
                neighbour.done += 1


def describe_configs(neighbour: Neighbour) -> None:
    """Ask for all configs of 1,000 topics with one request."""
    resources = [{"resource_type": 2, "resource_name": name} for name in topic_names("topic", 1000)]
    with neighbour.connect() as client, neighbour.at_work():
        client.send(ApiKey.DESCRIBE_CONFIGS, 4, resources=resources)
        client.receive_bytes()
        neighbour.done = 1


def alter_configs(neighbour: Neighbour) -> None:
    """Change a config of each of 1,000 topics with one request."""
    change = {"name": "retention.ms", "config_operation": 0, "value": "3600000"}
    resources = [
        {"resource_type": 2, "resource_name": name, "configs": [change]} for name in topic_names("topic", 1000)
    ]
    with neighbour.connect() as client, neighbour.at_work():
        answer = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources)
        _check(each.error_code for each in answer.responses)
        neighbour.done = 1


def log_dirs(neighbour: Neighbour) -> None:
    """Ask for the sizes of all partitions."""
    with neighbour.connect() as client, neighbour.at_work():
        for _ in range(5):
            client.send(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
            client.receive_bytes()
            neighbour.done += 1


def _commit(group: str, topics: int) -> dict[str, object]:
    parts = [{"partition_index": number, "committed_offset": 1} for number in range(PARTITIONS_EACH)]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": name, "partitions": parts} for name in topic_names("topic", topics)],
    }


def large_commits(neighbour: Neighbour) -> None:
    """Commit 5,000 partitions at once, twenty times."""
    with neighbour.connect() as client:
        find_coordinator(client, "large-0", 0)
        frames = [client.frame(ApiKey.OFFSET_COMMIT, 8, **_commit(f"large-{n}", 1000)) for n in range(20)]
        with neighbour.at_work():
            for frame in frames:
                client.send_bytes(frame)
                client.receive_bytes()
                neighbour.done += 1


def group_commits(neighbour: Neighbour) -> None:
    """Commit 100 partitions in each of 1,000 groups."""
    with neighbour.connect() as client:
        find_coordinator(client, "group-0", 0)
        frames = [client.frame(ApiKey.OFFSET_COMMIT, 8, **_commit(f"group-{n}", 20)) for n in range(GROUPS)]
        with neighbour.at_work():
            for frame in frames:
                client.send_bytes(frame)
                client.receive_bytes()
                neighbour.done += 1


def find_coordinator(client: Wire, key: str, key_type: int) -> None:
    """Return once there is one, and its topic is loaded."""
    deadline = time.monotonic() + TIMEOUT_S
    while int(client.call(ApiKey.FIND_COORDINATOR, 1, key=key, key_type=key_type).error_code):
        if time.monotonic() > deadline:
            raise RuntimeError(f"no coordinator for {key}")
        time.sleep(0.1)
    time.sleep(1)


def producer_ids(neighbour: Neighbour) -> None:
    """Ask for 30,000 producer ids."""
    _init(neighbour, 30_000, lambda _: None)


def transactional_ids(neighbour: Neighbour) -> None:
    """Begin under 2,000 transactional ids."""
    with neighbour.connect() as client:
        find_coordinator(client, "name-0", 1)
    _init(neighbour, 2000, lambda number: f"name-{number}")


def _init(neighbour: Neighbour, count: int, name: Callable[[int], str | None]) -> None:
    with neighbour.connect() as client:
        window = 100
        frames = [
            client.frame(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=name(number), transaction_timeout=60_000)
            for number in range(count)
        ]
        with neighbour.at_work():
            for begin in range(0, count, window):
                client.send_bytes(b"".join(frames[begin : begin + window]))
                for _ in frames[begin : begin + window]:
                    client.receive_bytes()
                    neighbour.done += 1


def joins(neighbour: Neighbour) -> None:
    """Let 2,000 members join one classic group, and be given their assignments."""
    protocols = [{"name": "range", "metadata": b"\0\1" + bytes(100)}]
    member = {
        "group_id": "joined",
        "session_timeout": 60_000,
        "rebalance_timeout": 300_000,
        "protocol_type": "consumer",
    }
    with ExitStack() as stack:
        clients = [stack.enter_context(neighbour.connect()) for _ in range(MEMBERS)]
        find_coordinator(clients[0], "joined", 0)
        with neighbour.at_work():
            for client in clients:
                client.send(ApiKey.JOIN_GROUP, 3, member_id="", protocols=protocols, **member)
            answers = [client.receive(ApiKey.JOIN_GROUP, 3) for client in clients]
            _check(each.error_code for each in answers)
            assignments = [
                {"member_id": each.member_id, "assignment": bytes(100)} for each in max(answers, key=_members).members
            ]
            for client, answer in zip(clients, answers, strict=True):
                client.send(
                    ApiKey.SYNC_GROUP,
                    2,
                    group_id="joined",
                    generation_id=answer.generation_id,
                    member_id=answer.member_id,
                    assignments=assignments if answer.leader == answer.member_id else (),
                )
            _check(client.receive(ApiKey.SYNC_GROUP, 2).error_code for client in clients)
            neighbour.done = 2 * MEMBERS


def _members(answer: object) -> int:
    return len(answer.members)  # type: ignore[attr-defined]


def waiters(neighbour: Neighbour) -> None:
    """Let 2,000 fetches wait for `fetch.min.bytes` of the topic that is produced to, and be answered."""
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    request = {
        "max_wait": 3000,
        "min_bytes": 1 << 30,
        "max_bytes": 1 << 20,
        "topics": [{"topic": "good", "partitions": [partition]}],
    }
    with ExitStack() as stack:
        clients = [stack.enter_context(neighbour.connect()) for _ in range(MEMBERS)]
        with neighbour.at_work():
            for client in clients:
                client.send(ApiKey.FETCH, 11, **request)
            for client in clients:
                client.receive_bytes()
                neighbour.done += 1


def streams_topology(neighbour: Neighbour) -> None:
    """Join a streams group with a topology of 5,000 subtopologies, and send heartbeats."""
    parts = [
        {
            "subtopology_id": f"{number}",
            "source_topics": [f"topic-{number % TOPICS}"] if number < 1 else [],
            "repartition_source_topics": [{"name": f"part-{number}"}] if number else [],
            "repartition_sink_topics": [f"part-{number + 1}"] if number + 1 < PARTS else [],
        }
        for number in range(PARTS)
    ]
    with neighbour.connect() as client:
        find_coordinator(client, "streams", 0)
        frame = client.frame(
            ApiKey.STREAMS_GROUP_HEARTBEAT,
            0,
            group_id="streams",
            member_id="one",
            rebalance_timeout=60_000,
            topology={"epoch": 1, "subtopologies": parts},
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="process",
        )
        with neighbour.at_work():
            client.send_bytes(frame)
            _check(iter([client.receive(ApiKey.STREAMS_GROUP_HEARTBEAT, 0).error_code]))
            neighbour.done = 1


NEIGHBOURS: dict[str, Callable[[Neighbour], None]] = {
    "create-topics": create_topics,
    "delete-topics": delete_topics,
    "create-wide": create_wide,
    "delete-wide": delete_wide,
    "metadata": metadata,
    "describe-configs": describe_configs,
    "alter-configs": alter_configs,
    "log-dirs": log_dirs,
    "large-commits": large_commits,
    "group-commits": group_commits,
    "producer-ids": producer_ids,
    "transactional-ids": transactional_ids,
    "joins": joins,
    "waiters": waiters,
    "streams-topology": streams_topology,
}


def main() -> None:
    name, address = sys.argv[1:]
    neighbour = Neighbour(address)
    NEIGHBOURS[name](neighbour)
    print(json.dumps({"done": neighbour.done, "seconds": neighbour.seconds}))


if __name__ == "__main__":
    main()
