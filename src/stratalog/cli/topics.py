"""`stratalog topics`: create, list, describe, alter and delete. Text as kafka-topics prints it."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import typer

from stratalog.broker.metadata import ConfigSource
from stratalog.cli.completion import complete_topics
from stratalog.cli.connection import ClusterOptions
from stratalog.cli.options import DryRun, Json, JsonLines, key_values
from stratalog.cli.out import on_terminal, print_json
from stratalog.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError, UsageError
from stratalog.util import print_table, uuid_to_base64
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, check, check_topic

TopicName = Annotated[
    str | None,
    typer.Argument(metavar="TOPIC", show_default=False, help="The topic.", autocompletion=complete_topics),
]
TopicNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC..", show_default=False, help="The topics.", autocompletion=complete_topics),
]
TopicOption = Annotated[
    list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Same as TOPIC, for users of kafka-topics.")
]

_TIMEOUT_MS = 30_000
_TOPIC_RESOURCE = 2
#: A count that the broker chooses.
_DEFAULT = -1


def create(
    servers: ClusterOptions,
    name: TopicName = None,
    topic: TopicOption = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Number of partitions. Default: the broker's num.partitions.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, help="Number of replicas. Default: the broker's default.replication.factor.")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="KEY=VALUE", help="Set one configuration of the topic."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic exists already.")
    ] = False,
    dry_run: DryRun = False,
    json_: Json = False,
) -> int:
    """Create a topic.

    \b
    Examples:
      stratalog topics create orders --partitions 3 --bootstrap-server h:9092
      stratalog topics create orders --bootstrap-server h:9092 \\
        --config retention.ms=3600000 --config segment.bytes=4294967296
    """
    wanted = _one_name(name, topic)
    request = {
        "name": wanted,
        "num_partitions": _DEFAULT if partitions is None else partitions,
        "replication_factor": _DEFAULT if replication_factor is None else replication_factor,
        "configs": [
            {"name": key.strip(), "value": value.strip()} for key, value in key_values("--config", config).items()
        ],
    }
    with servers.open() as cluster:
        (answer,) = cluster.any.call(
            ApiKey.CREATE_TOPICS, (4, 7), topics=[request], timeout=_TIMEOUT_MS, validate_only=dry_run
        ).topics
    there = int(answer.error_code) == TopicAlreadyExistsError.code and if_not_exists
    if not there:
        check(answer.error_code, answer.error_message, f"Could not create topic {wanted}")
    if json_:
        print_json({"topic": wanted, "created": not there and not dry_run, "dryRun": dry_run})
    elif not there:
        print(f"Topic {wanted} can be created." if dry_run else f"Created topic {wanted}.")
    return 0


def list_(
    servers: ClusterOptions,
    exclude_internal: Annotated[bool, typer.Option("--exclude-internal", help="Leave out internal topics.")] = False,
    json_: JsonLines = False,
) -> int:
    """List the names of all topics, one a line.

    \b
    Example:
      stratalog topics list --bootstrap-server h:9092
    """
    with servers.open() as cluster:
        found = _metadata(cluster, None)
    names = [topic.name for topic in found if not (exclude_internal and topic.is_internal)]
    if json_:
        for name in names:
            print_json({"topic": name})
    else:
        for name in names:
            print(name)
    return 0


def describe(
    servers: ClusterOptions,
    names: TopicNames = None,
    topic: TopicOption = None,
    json_: JsonLines = False,
) -> int:
    """Describe the partitions, replicas and configurations of these topics, or of all.

    \b
    Example:
      stratalog topics describe orders --bootstrap-server h:9092
    """
    wanted = [*(names or []), *(topic or [])]
    with servers.open() as cluster:
        found = _metadata(cluster, wanted or None)
        configs = _configs_of(cluster, [each.name for each in found])
    if json_:
        for each in found:
            print_json(_as_json(each, configs[each.name]))
        return 0
    for each in found:
        if on_terminal():
            _print_topic(each, configs[each.name])
        else:
            _print_plain(each, configs[each.name])
    return 0


def alter(
    servers: ClusterOptions,
    partitions: Annotated[int, typer.Option(min=1, help="New number of partitions, larger than the present one.")],
    name: TopicName = None,
    topic: TopicOption = None,
    dry_run: DryRun = False,
    json_: Json = False,
) -> int:
    """Add partitions to a topic. To change configurations, use `stratalog configs alter`.

    \b
    Example:
      stratalog topics alter orders --partitions 6 --bootstrap-server h:9092
    """
    wanted = _one_name(name, topic)
    request = {"name": wanted, "count": partitions, "assignments": None}
    with servers.open() as cluster:
        (answer,) = cluster.any.call(
            ApiKey.CREATE_PARTITIONS, (0, 3), topics=[request], timeout=_TIMEOUT_MS, validate_only=dry_run
        ).results
    if int(answer.error_code) == UnknownTopicOrPartitionError.code:
        check_topic(answer.error_code, wanted)
    check(answer.error_code, answer.error_message, f"Could not alter topic {wanted}")
    if json_:
        print_json({"topic": wanted, "partitions": partitions, "dryRun": dry_run})
    return 0


def delete(
    servers: ClusterOptions,
    names: TopicNames = None,
    topic: TopicOption = None,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed if a topic does not exist.")] = False,
    json_: Json = False,
) -> int:
    """Delete topics with all their records, local and remote.

    \b
    Example:
      stratalog topics delete orders --bootstrap-server h:9092
    """
    wanted = [*(names or []), *(topic or [])]
    if not wanted:
        raise UsageError("no topic given: stratalog topics delete TOPIC --bootstrap-server H:P")
    with servers.open() as cluster:
        answers = cluster.any.call(
            ApiKey.DELETE_TOPICS,
            (1, 6),
            topics=[{"name": name, "topic_id": None} for name in wanted],
            topic_names=tuple(wanted),
            timeout=_TIMEOUT_MS,
        ).responses
    deleted = []
    for answer in answers:
        if not int(answer.error_code):
            deleted.append(answer.name)
        elif not (if_exists and int(answer.error_code) == UnknownTopicOrPartitionError.code):
            check_topic(answer.error_code, answer.name)
    if json_:
        print_json({"deleted": deleted})
    return 0


def _one_name(name: str | None, options: list[str] | None) -> str:
    names = [*([name] if name is not None else []), *(options or [])]
    if len(names) != 1:
        raise UsageError("expected the name of one topic")
    return names[0]


def _metadata(cluster: Cluster, names: list[str] | None) -> list[Any]:
    """Topics by name, all of them for None; RefusedError for one that does not exist."""
    answer = cluster.any.call(
        ApiKey.METADATA,
        (4, 12),
        topics=None if names is None else [{"name": name, "topic_id": None} for name in names],
        allow_auto_topic_creation=False,
    )
    for topic in answer.topics:
        if names is not None:
            check_topic(topic.error_code, topic.name)
    return sorted(answer.topics, key=lambda topic: str(topic.name))


def _configs_of(cluster: Cluster, names: list[str]) -> dict[str, dict[str, str]]:
    """Return the settings of each topic that are not defaults, as kafka-topics shows them."""
    if not names:
        return {}
    answer = cluster.any.call(
        ApiKey.DESCRIBE_CONFIGS,
        (1, 4),
        resources=[
            {"resource_type": _TOPIC_RESOURCE, "resource_name": name, "configuration_keys": None} for name in names
        ],
    )
    found = {}
    for result in answer.results:
        check(result.error_code, result.error_message, f"Topic '{result.resource_name}'")
        found[result.resource_name] = {
            config.name: config.value or ""
            for config in sorted(result.configs, key=lambda config: str(config.name))
            if config.config_source != ConfigSource.DEFAULT
        }
    return found


def _topic_id(topic: Any) -> str:
    topic_id = getattr(topic, "topic_id", None)
    return uuid_to_base64(topic_id or UUID(int=0))


def _partitions(topic: Any) -> list[Any]:
    return sorted(topic.partitions, key=lambda part: int(part.partition_index))


def _as_json(topic: Any, configs: dict[str, str]) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topicId": _topic_id(topic),
        "internal": bool(topic.is_internal),
        "configs": configs,
        "partitions": [
            {
                "partition": int(part.partition_index),
                "leader": int(part.leader_id),
                "replicas": [int(node) for node in part.replica_nodes],
                "isr": [int(node) for node in part.isr_nodes],
            }
            for part in _partitions(topic)
        ],
    }


def _print_plain(topic: Any, configs: dict[str, str]) -> None:
    parts = _partitions(topic)
    replicas = len(parts[0].replica_nodes) if parts else 0
    text = ",".join(f"{key}={value}" for key, value in configs.items())
    print(
        f"Topic: {topic.name}\tTopicId: {_topic_id(topic)}\tPartitionCount: {len(parts)}\t"
        f"ReplicationFactor: {replicas}\tConfigs: {text}"
    )
    for part in parts:
        leader = "none" if int(part.leader_id) < 0 else int(part.leader_id)
        print(
            f"\tTopic: {topic.name}\tPartition: {part.partition_index}\tLeader: {leader}\t"
            f"Replicas: {_comma(part.replica_nodes)}\tIsr: {_comma(part.isr_nodes)}"
        )


def _print_topic(topic: Any, configs: dict[str, str]) -> None:
    text = ", ".join(f"{key}={value}" for key, value in configs.items())
    rows = [
        (
            int(part.partition_index),
            int(part.leader_id),
            _comma(part.replica_nodes),
            _comma(part.isr_nodes),
        )
        for part in _partitions(topic)
    ]
    title = f"{topic.name}  {_topic_id(topic)}" + (f"\n{text}" if text else "")
    print_table(("partition", "leader", "replicas", "in sync"), rows, title)


def _comma(nodes: Any) -> str:
    return ",".join(str(int(node)) for node in nodes)
