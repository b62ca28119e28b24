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
    yield from _loggers(ask)
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
        for replicas in ((1,), None, (), (2,), (1, 2), (2, 1), (1, 1), (1, 1, 7), (-1,)):
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


#: A logger that both brokers have at their start: of every denial.
LOGGER = "kafka.authorizer.logger"
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_LEVELS = ("FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "OFF", "ALL", "WARNING", "debug", "", None)


def _loggers(ask: _Ask) -> Iterator[tuple[str, Callable[[], Any]]]:
    def describe(version: int, name: str, keys: tuple[str, ...], **fields: Any) -> Callable[[], Any]:
        wanted = [{"resource_type": BROKER_LOGGER, "resource_name": name, "configuration_keys": keys}]
        return ask(ApiKey.DESCRIBE_CONFIGS, version, resources=wanted, **fields)

    def alter(*changes: tuple[str, int, str | None], name: str = "1", dry_run: bool = False) -> Callable[[], Any]:
        configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
        resource = {"resource_type": BROKER_LOGGER, "resource_name": name, "configs": configs}
        return ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=dry_run)

    yield "Loggers: set the root and another", alter(("root", _SET, "WARN"), (LOGGER, _SET, "ERROR"))
    for version in (1, 2, 3, 4):
        yield f"Loggers: describe v{version}", describe(version, "1", (LOGGER, "root", "no.such.logger"))
    yield "Loggers: describe with all", describe(4, "1", (LOGGER,), include_synonyms=True, include_documentation=True)
    for name in ("", "2", "x", "-1"):
        yield f"Loggers: describe broker {name!r}", describe(4, name, (LOGGER,))
        yield f"Loggers: alter broker {name!r}", alter((LOGGER, _SET, "INFO"), name=name)
    for level in _LEVELS:
        yield f"Loggers: set {level!r}", alter((LOGGER, _SET, level))
        yield f"Loggers: it is {level!r}", describe(4, "1", (LOGGER,))
    for operation in (_SET, _DELETE, _APPEND, _SUBTRACT, 7):
        yield f"Loggers: operation {operation} on no logger", alter(("no.such.logger", operation, "INFO"))
        yield f"Loggers: operation {operation} on the root", alter(("root", operation, "ERROR"))
        yield f"Loggers: operation {operation} on a logger", alter((LOGGER, operation, "INFO"))
        yield f"Loggers: after operation {operation}", describe(4, "1", (LOGGER, "root"))
    yield "Loggers: try alone", alter((LOGGER, _SET, "DEBUG"), dry_run=True)
    yield "Loggers: one of two is bad", alter((LOGGER, _SET, "DEBUG"), ("no.such.logger", _SET, "INFO"))
    yield "Loggers: the same twice", alter((LOGGER, _SET, "DEBUG"), (LOGGER, _SET, "INFO"))
    yield "Loggers: nothing", alter()
    yield "Loggers: after all", describe(4, "1", (LOGGER, "root"))
    yield (
        "Loggers: AlterConfigs",
        ask(
            ApiKey.ALTER_CONFIGS,
            2,
            resources=[
                {"resource_type": BROKER_LOGGER, "resource_name": "1", "configs": [{"name": "root", "value": "INFO"}]}
            ],
            validate_only=False,
        ),
    )
