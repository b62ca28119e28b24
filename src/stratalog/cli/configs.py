"""`stratalog configs`: describe and alter dynamic configurations. Output as kafka-configs prints it."""

from __future__ import annotations

import re
from enum import Enum
from typing import Annotated, Any

import typer

from stratalog.broker.metadata import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC, ConfigSource, Operation
from stratalog.cli.connection import ClusterOptions
from stratalog.cli.options import DryRun, Json, JsonLines
from stratalog.cli.out import on_terminal, print_json
from stratalog.errors import UnknownTopicOrPartitionError, UsageError
from stratalog.util import print_table
from stratalog.wire import ApiKey
from stratalog.wire.client import Client, Cluster, check, check_topic


class EntityType(Enum):
    TOPICS = "topics"
    BROKERS = "brokers"
    BROKER_LOGGERS = "broker-loggers"
    GROUPS = "groups"
    CLIENT_METRICS = "client-metrics"


EntityTypeOption = Annotated[EntityType, typer.Option("--entity-type", help="Kind of entity.")]
EntityName = Annotated[
    str | None, typer.Option("--entity-name", metavar="N", help="Name of the topic or group, or id of the broker.")
]
EntityDefault = Annotated[bool, typer.Option("--entity-default", help="With brokers: the defaults of all brokers.")]

_SOURCES = {
    ConfigSource.TOPIC: "DYNAMIC_TOPIC_CONFIG",
    ConfigSource.DYNAMIC_BROKER: "DYNAMIC_BROKER_CONFIG",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    ConfigSource.STATIC_BROKER: "STATIC_BROKER_CONFIG",
    ConfigSource.DEFAULT: "DEFAULT_CONFIG",
    ConfigSource.BROKER_LOGGER: "DYNAMIC_BROKER_LOGGER_CONFIG",
    ConfigSource.GROUP: "DYNAMIC_GROUP_CONFIG",
    ConfigSource.CLIENT_METRICS: "DYNAMIC_CLIENT_METRICS_CONFIG",
}
_RESOURCES = {
    EntityType.TOPICS: TOPIC,
    EntityType.BROKERS: BROKER,
    EntityType.BROKER_LOGGERS: BROKER_LOGGER,
    EntityType.GROUPS: GROUP,
    EntityType.CLIENT_METRICS: CLIENT_METRICS,
}
#: Entities named by the id of a broker, which must answer itself.
_OF_A_BROKER = (EntityType.BROKERS, EntityType.BROKER_LOGGERS)
#: Sources of values that are set on the entity itself.
_OWN = {
    EntityType.TOPICS: ConfigSource.TOPIC,
    EntityType.GROUPS: ConfigSource.GROUP,
    EntityType.CLIENT_METRICS: ConfigSource.CLIENT_METRICS,
}
#: Separates pairs at commas, except within [..].
_PAIRS = re.compile(r",(?![^\[]*\])")


def describe(
    servers: ClusterOptions,
    entity_type: EntityTypeOption,
    entity_name: EntityName = None,
    entity_default: EntityDefault = False,
    all_: Annotated[bool, typer.Option("--all", help="Show settings with default values too.")] = False,
    json_: JsonLines = False,
) -> int:
    """Describe the settings of one topic, broker or group, or of all, with the source of each value.

    The settings of `broker-loggers` are the levels of the loggers of a broker.

    \b
    Example:
      stratalog configs describe --bootstrap-server h:9092 --entity-type brokers \\
        --entity-name 1 --all
    """
    _check_entity(entity_type, entity_name, entity_default)
    with servers.open() as cluster:
        if entity_default:
            names = [""]
        else:
            names = [entity_name] if entity_name is not None else _all_names(cluster, entity_type)
        found = {name: _entries(cluster, entity_type, name, all_) for name in names}
    if json_:
        entities = [
            {"entityType": entity_type.value, "entityName": name, "configs": list(map(_as_json, entries))}
            for name, entries in found.items()
        ]
        for entity in entities:
            print_json(entity)
        return 0
    for name, entries in found.items():
        title = _title(entity_type, name, all_)
        if on_terminal():
            rows = [(e.name, e.value, _source(e.config_source)) for e in entries]
            print_table(("key", "value", "from"), rows, title)
        else:
            print(f"{title} are:")
            for entry in entries:
                print(_plain(entry))
    return 0


def alter(
    servers: ClusterOptions,
    entity_type: EntityTypeOption,
    entity_name: EntityName = None,
    entity_default: EntityDefault = False,
    add_config: Annotated[
        list[str] | None,
        typer.Option(
            "--add-config", metavar="K=V,..", help="Settings to add or change. Write lists in brackets: k=[a,b]."
        ),
    ] = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", metavar="K,..", help="Settings to remove.")
    ] = None,
    dry_run: DryRun = False,
    json_: Json = False,
) -> int:
    """Change the settings of one topic, broker or group. They take effect before the command returns.

    \b
    Examples:
      stratalog configs alter --bootstrap-server h:9092 --entity-type topics \\
        --entity-name orders --add-config segment.bytes=4294967296
      stratalog configs alter --bootstrap-server h:9092 --entity-type brokers \\
        --entity-default --add-config min.topic.segment.ms=60000
      stratalog configs alter --bootstrap-server h:9092 --entity-type broker-loggers \\
        --entity-name 1 --add-config stratalog.remote.tier=DEBUG
    """
    _check_entity(entity_type, entity_name, entity_default)
    if entity_name is None and not entity_default:
        raise UsageError("no entity given: use --entity-name N, or --entity-default with brokers")
    added, deleted = _parse_added(add_config or []), _parse_deleted(delete_config or [])
    if not added and not deleted:
        raise UsageError("nothing to change: give --add-config K=V,.. or --delete-config K,..")
    name = entity_name or ""
    changes = [{"name": k, "config_operation": int(Operation.SET), "value": v} for k, v in added.items()]
    changes += [{"name": k, "config_operation": int(Operation.DELETE), "value": None} for k in deleted]
    resource = {"resource_type": _RESOURCES[entity_type], "resource_name": name, "configs": changes}
    what = f"{entity_type.value.removesuffix('s')} {name}" if name else "brokers in the cluster"
    with servers.open() as cluster:
        (answer,) = (
            _client_for(cluster, entity_type, name)
            .call(ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), resources=[resource], validate_only=dry_run)
            .responses
        )
    if int(answer.error_code) == UnknownTopicOrPartitionError.code:
        check_topic(answer.error_code, name)
    check(answer.error_code, answer.error_message, f"Could not alter {what}")
    if json_:
        print_json(
            {
                "entityType": entity_type.value,
                "entityName": name,
                "set": added,
                "deleted": deleted,
                "dryRun": dry_run,
            }
        )
    elif dry_run:
        print(f"The config of {what} can be altered.")
    elif name:
        print(f"Completed updating config for {what}.")
    else:
        print("Completed updating default config for brokers in the cluster.")
    return 0


def _check_entity(entity_type: EntityType, name: str | None, default: bool) -> None:
    if default and name is not None:
        raise UsageError("give either --entity-name or --entity-default")
    if default and entity_type is EntityType.TOPICS:
        raise UsageError("--entity-default needs --entity-type brokers: topics take their defaults from the brokers")
    if default and entity_type in (EntityType.GROUPS, EntityType.CLIENT_METRICS):
        raise UsageError(f"--entity-default needs --entity-type brokers: {entity_type.value} have no defaults to set")
    if default and entity_type is EntityType.BROKER_LOGGERS:
        raise UsageError("--entity-default needs --entity-type brokers: each broker has its own loggers")
    if entity_type in _OF_A_BROKER and name is not None and not name.isdecimal():
        raise UsageError(f"--entity-name {name}: expected the id of a broker, such as 1")
    if name == "":
        raise UsageError("--entity-name is empty")


def _client_for(cluster: Cluster, entity_type: EntityType, name: str) -> Client:
    """Return the broker to query: each describes its own configs."""
    return cluster.node(int(name)) if entity_type in _OF_A_BROKER and name else cluster.any


def _all_names(cluster: Cluster, entity_type: EntityType) -> list[str]:
    if entity_type in (EntityType.GROUPS, EntityType.CLIENT_METRICS):
        wanted = (_RESOURCES[entity_type],)
        listed = cluster.any.call(ApiKey.LIST_CONFIG_RESOURCES, (1, 1), resource_types=wanted)
        check(listed.error_code, None)
        return sorted(str(each.resource_name) for each in listed.config_resources)
    if entity_type in _OF_A_BROKER:
        return [str(node) for node in sorted(cluster.nodes())]
    answer = cluster.any.call(ApiKey.METADATA, (4, 9), topics=None, allow_auto_topic_creation=False)
    return sorted(str(topic.name) for topic in answer.topics)


def _entries(cluster: Cluster, entity_type: EntityType, name: str, everything: bool) -> list[Any]:
    """Return settings by key: all of them, or only those set dynamically on this entity."""
    resource = {"resource_type": _RESOURCES[entity_type], "resource_name": name, "configuration_keys": None}
    (answer,) = (
        _client_for(cluster, entity_type, name)
        .call(ApiKey.DESCRIBE_CONFIGS, (1, 4), resources=[resource], include_synonyms=True)
        .results
    )
    if entity_type is EntityType.TOPICS:
        check_topic(answer.error_code, name)
    check(answer.error_code, answer.error_message)
    of_broker = ConfigSource.DYNAMIC_BROKER if name else ConfigSource.DYNAMIC_DEFAULT_BROKER
    own = _OWN.get(entity_type, of_broker)
    everything = everything or entity_type is EntityType.BROKER_LOGGERS
    return sorted(
        (entry for entry in answer.configs if everything or entry.config_source == own),
        key=lambda entry: str(entry.name),
    )


def _title(entity_type: EntityType, name: str, everything: bool) -> str:
    if not name:
        return "Default configs for brokers in the cluster"
    return f"{'All' if everything else 'Dynamic'} configs for {entity_type.value.removesuffix('s')} {name}"


def _source(number: int) -> str:
    try:
        return _SOURCES[ConfigSource(number)]
    except ValueError:
        return f"SOURCE_{number}"


def _plain(entry: Any) -> str:
    """Return a line of kafka-configs."""
    value = "null" if entry.value is None else entry.value
    synonyms = ", ".join(
        f"{_source(same.source)}:{same.name}={'null' if same.value is None else same.value}" for same in entry.synonyms
    )
    sensitive = "true" if entry.is_sensitive else "false"
    return f"  {entry.name}={value} sensitive={sensitive} synonyms={{{synonyms}}}"


def _as_json(entry: Any) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": _source(entry.config_source),
        "sensitive": bool(entry.is_sensitive),
        "readOnly": bool(entry.read_only),
        "synonyms": [
            {"name": same.name, "value": same.value, "source": _source(same.source)} for same in entry.synonyms
        ],
    }


def _parse_added(given: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in given:
        for pair in filter(None, (part.strip() for part in _PAIRS.split(text))):
            key, separator, value = pair.partition("=")
            if not separator or not key.strip():
                raise UsageError(f"--add-config {pair}: expected KEY=VALUE")
            value = value.strip()
            bracketed = value.startswith("[") and value.endswith("]")
            pairs[key.strip()] = value[1:-1] if bracketed else value
    return pairs


def _parse_deleted(given: list[str]) -> list[str]:
    return [key for text in given for key in (part.strip() for part in text.split(",")) if key]
