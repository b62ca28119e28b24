"""Requests about the cluster, one after the other on a fresh broker, whose answers have to be Apache Kafka's.

`tests/golden/cluster/answers.json` holds what Kafka 4.4.0 answered; `python -m tests.golden.cluster.make` writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.broker.record_cases import Asker, create_topics

from stratalog.wire.api_keys import ApiKey

#: What a quorum's offsets, epochs and times are depends on what was done before.
_OF_THE_MOMENT = {
    "leader_epoch",
    "high_watermark",
    "log_end_offset",
    "replica_directory_id",
    "last_fetch_timestamp",
    "last_caught_up_timestamp",
}
PREFERRED, UNCLEAN = 0, 1
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def run(bootstrap_servers: str) -> dict[str, Any]:
    """All answers by name."""
    asker = Asker(bootstrap_servers)
    try:
        create_topics(asker)
        return {name: _steady(ask()) for name, ask in _cases(asker)}
    finally:
        asker.close()


def _steady(answer: Any) -> Any:
    """The answer without what is of the moment, with lists in a fixed order."""
    if isinstance(answer, dict):
        return {key: _steady(value) for key, value in answer.items() if key not in _OF_THE_MOMENT}
    return sorted(map(_steady, answer), key=repr) if isinstance(answer, list) else answer


def _cases(asker: Asker) -> Iterator[tuple[str, Callable[[], Any]]]:
    ask = partial(partial, asker.ask)
    yield from _elections(ask)
    yield from _reassignments(ask)
    yield from _quorum(ask)
    yield from _config_resources(ask)
    for broker_id in (-1, 0, 77):
        yield f"UnregisterBroker {broker_id}", ask(ApiKey.UNREGISTER_BROKER, 0, broker_id=broker_id)


_Ask = Callable[..., Callable[[], Any]]
_PARTITIONS: dict[str, tuple[str, tuple[int, ...]]] = {
    "one": ("plain", (0,)),
    "two": ("plain", (0, 1)),
    "two the same": ("plain", (1, 1)),
    "none": ("plain", ()),
    "an unknown partition": ("plain", (0, 9)),
    "a negative partition": ("plain", (-1,)),
    "an unknown topic": ("nobody-knows", (0, 1)),
    "no name": ("", (0,)),
}


def _elections(ask: _Ask) -> Iterator[tuple[str, Callable[[], Any]]]:
    for version in (0, 1, 2):
        for election in (PREFERRED, UNCLEAN, 2) if version else (PREFERRED,):
            fields = {"election_type": election} if version else {}
            for name, (topic, partitions) in _PARTITIONS.items():
                wanted = [{"topic": topic, "partitions": partitions}]
                yield (
                    f"ElectLeaders v{version} of type {election}: {name}",
                    ask(ApiKey.ELECT_LEADERS, version, topic_partitions=wanted, timeout=5000, **fields),
                )
            yield (
                f"ElectLeaders v{version} of type {election}: everywhere",
                ask(ApiKey.ELECT_LEADERS, version, topic_partitions=None, timeout=5000, **fields),
            )
            yield (
                f"ElectLeaders v{version} of type {election}: nowhere",
                ask(ApiKey.ELECT_LEADERS, version, topic_partitions=[], timeout=5000, **fields),
            )


def _reassignments(ask: _Ask) -> Iterator[tuple[str, Callable[[], Any]]]:
    for version in (0, 1):
        for replicas in ((1,), None, (), (2,), (1, 2), (2, 1), (1, 1), (-1,)):
            for allow in (True, False) if version else (True,):
                fields = {"allow_replication_factor_change": allow} if version else {}
                partitions = [{"partition_index": 0, "replicas": replicas}]
                yield (
                    f"AlterPartitionReassignments v{version} to {replicas}, {allow}",
                    ask(
                        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                        version,
                        timeout=5000,
                        topics=[{"name": "plain", "partitions": partitions}],
                        **fields,
                    ),
                )
        for name, (topic, indexes) in _PARTITIONS.items():
            for replicas in ((1,), None):
                partitions = [{"partition_index": index, "replicas": replicas} for index in indexes]
                yield (
                    f"AlterPartitionReassignments v{version} to {replicas}: {name}",
                    ask(
                        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                        version,
                        timeout=5000,
                        topics=[{"name": topic, "partitions": partitions}],
                    ),
                )
    for name, (topic, indexes) in _PARTITIONS.items():
        wanted = [{"name": topic, "partition_indexes": indexes}]
        yield (
            f"ListPartitionReassignments: {name}",
            ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout=5000, topics=wanted),
        )
    yield (
        "ListPartitionReassignments: everywhere",
        ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout=5000, topics=None),
    )


def _quorum(ask: _Ask) -> Iterator[tuple[str, Callable[[], Any]]]:
    for version in (0, 1, 2):
        for topic, indexes in (
            ("__cluster_metadata", (0,)),
            ("__cluster_metadata", (1,)),
            ("__cluster_metadata", (0, 1)),
            ("__cluster_metadata", ()),
            ("plain", (0,)),
        ):
            partitions = [{"partition_index": index} for index in indexes]
            yield (
                f"DescribeQuorum v{version} of {topic} {indexes}",
                ask(
                    ApiKey.DESCRIBE_QUORUM,
                    version,
                    topics=[{"topic_name": topic, "partitions": partitions}],
                ),
            )
        yield f"DescribeQuorum v{version} of nothing", ask(ApiKey.DESCRIBE_QUORUM, version, topics=[])


def _config_resources(ask: _Ask) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "ListConfigResources v0", ask(ApiKey.LIST_CONFIG_RESOURCES, 0)
    for types in (
        (),
        (TOPIC,),
        (BROKER,),
        (BROKER_LOGGER,),
        (CLIENT_METRICS,),
        (GROUP,),
        (TOPIC, BROKER),
        (BROKER, BROKER),
        (0,),
        (99,),
        (TOPIC, 99),
    ):
        yield (
            f"ListConfigResources v1 of {types}",
            ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=types),
        )
