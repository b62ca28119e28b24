"""`stratalog cluster check`: find what prevents a take-over of a broker's directories."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from stratalog.cli.cluster.take_over import (
    ClusterFacts,
    DirectoryOwner,
    TakeOverFinding,
    check_cluster,
    check_directories,
    in_order,
)
from stratalog.cli.connection import ClusterOptions
from stratalog.cli.options import CommandConfig, DataDirs, JsonLines, OptionalBootstrapServer
from stratalog.cli.out import FindingsPrinter, FindingText, severity_counts
from stratalog.config import AUTHORIZER, BrokerConfig, parse_properties, refuse_unkept
from stratalog.errors import InvalidConfigError, StratalogError, UsageError
from stratalog.log import list_partitions
from stratalog.util import REAL_FILESYSTEM, TableColumn
from stratalog.wire import ApiKey
from stratalog.wire.client import Client, Cluster, ConnectionOptions, UnreachableError, check

_COLUMNS = (
    TableColumn("KIND"),
    TableColumn("WHERE", ratio=2),
    TableColumn("FOUND", ratio=3),
    TableColumn("REMEDY", ratio=3),
)
_METADATA_TOPIC = "__cluster_metadata"
_TOPIC = 2
_TIERED = "remote.storage.enable"
_SECURITY_DISABLED = 54
_ANY = 1
_CONTROLLERS = 2


def check_(
    data_dir: DataDirs = None,
    bootstrap_server: OptionalBootstrapServer = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The server.properties of the broker: its directories and controllers."),
    ] = None,
    command_config: CommandConfig = None,
    as_json: JsonLines = False,
) -> int:
    """Check whether a broker of stratalog can take over log directories of a cluster.

    Nothing is changed. Each finding comes with a remedy. The cluster is queried through a broker (-b) or through the
    controllers in --config; without either, only the directories are checked.

    Exit code 0: they can be taken over. Exit code 1: they cannot. Exit code 2: wrong arguments.

    \b
    Examples:
      stratalog cluster check --data-dir /var/lib/kafka/data -b other-broker:9092
      stratalog cluster check --config server.properties --json
    """
    found: list[TakeOverFinding] = []
    settings = None if config is None else _settings(config)
    if settings is not None and config is not None:
        found += _check_settings(settings, config)
    paths = (
        data_dir or []
        if settings is None
        else data_dir or [Path(name) for name in settings["log.dirs"] or settings["log.dir"]]
    )
    if not paths:
        raise UsageError("Missing option '--data-dir', or log.dirs in a --config FILE")
    node_id = settings["node.id"] if settings is not None and settings.is_set("node.id") else None
    owner, of_directories = check_directories(paths, node_id=node_id)
    found += of_directories
    connection = _connection(bootstrap_server, command_config, settings)
    if connection is not None:
        found += _check_cluster(connection, owner, paths, at_controllers=bootstrap_server is None, settings=settings)
    return _print(in_order(found), as_json=as_json)


def _settings(config: Path) -> BrokerConfig:
    try:
        text = REAL_FILESYSTEM.read_bytes(config).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {config}: {getattr(error, 'strerror', None) or error}") from None
    return BrokerConfig.from_properties(parse_properties(text, str(config)))


def _check_settings(settings: BrokerConfig, config: Path) -> list[TakeOverFinding]:
    """Return the first error that these settings cause at startup."""
    from stratalog.broker.cluster import ClusterSettings  # start-up cost

    roles = (settings.properties.get("process.roles") or "").strip()
    if roles != "broker":
        what = f"process.roles={roles}: a broker that takes over must have no other role"
        return [TakeOverFinding("error", "settings", str(config), what, "set process.roles=broker")]
    try:
        refuse_unkept(settings.properties, lambda _key: str(config))
        ClusterSettings.of(settings)
        if _has_plugin(settings):
            from stratalog.remote.storage import AivenSettings  # as above

            AivenSettings.of(settings.prefixed(settings["remote.log.storage.manager.impl.prefix"]))
    except (UsageError, InvalidConfigError) as error:
        return [TakeOverFinding("error", "settings", str(config), str(error), "change this setting")]
    return []


def _has_plugin(settings: BrokerConfig) -> bool:
    """Return whether the broker uses the storage plugin whose layout we write."""
    from stratalog.remote.storage import PLUGIN_CLASS  # as above

    is_plugin = settings["remote.log.storage.manager.class.name"] == PLUGIN_CLASS
    return is_plugin and bool(settings["remote.log.storage.system.enable"])


def _connection(
    bootstrap_server: str | None, command_config: Path | None, settings: BrokerConfig | None
) -> ConnectionOptions | None:
    if bootstrap_server is not None:
        return ClusterOptions(bootstrap_server=bootstrap_server, command_config=command_config).connection()
    if settings is None:
        return None
    from stratalog.broker.cluster import ClusterSettings  # as above

    try:
        return ClusterSettings.of(settings).connection
    except (UsageError, InvalidConfigError):
        return None  # a finding about the settings says it


def _check_cluster(
    connection: ConnectionOptions,
    owner: DirectoryOwner,
    paths: Sequence[Path],
    *,
    at_controllers: bool,
    settings: BrokerConfig | None,
) -> list[TakeOverFinding]:
    topics = {each.topic for path in paths for each in list_partitions(path)} - {_METADATA_TOPIC}
    try:
        with closing(Cluster(connection)) as cluster:
            facts = read_cluster(cluster.any, sorted(topics), at_controllers=at_controllers)
    except UnreachableError as error:
        who = "controllers" if at_controllers else "brokers"
        return [TakeOverFinding("error", "unreachable", who, str(error), f"check the addresses of the {who}")]
    except StratalogError as error:
        return [
            TakeOverFinding("error", "refused", "cluster", str(error), "give --command-config with an authorized user")
        ]
    has_authorizer = None if settings is None else bool(settings[AUTHORIZER])
    has_plugin = settings is not None and _has_plugin(settings)
    return check_cluster(facts, owner, topics, has_authorizer=has_authorizer, has_plugin=has_plugin)


def read_cluster(client: Client, topics: Sequence[str], *, at_controllers: bool) -> ClusterFacts:
    """Query a broker or a controller for the facts of a take-over. Errors as `Client.call`."""
    features = client.call(ApiKey.API_VERSIONS, (3, 4), client_software_name="stratalog", client_software_version="1")
    cluster = client.call(
        ApiKey.DESCRIBE_CLUSTER,
        (1, 2) if at_controllers else (0, 2),
        endpoint_type=_CONTROLLERS if at_controllers else 1,
    )
    check(cluster.error_code, cluster.error_message)
    quorum = (
        client.call(
            ApiKey.DESCRIBE_QUORUM,
            (0, 2),
            topics=[{"topic_name": _METADATA_TOPIC, "partitions": [{"partition_index": 0}]}],
        )
        .topics[0]
        .partitions[0]
    )
    return ClusterFacts(
        cluster_id=str(cluster.cluster_id),
        features={str(each.name): int(each.max_version_level) for each in features.finalized_features},
        alive=() if at_controllers else [int(each.broker_id) for each in cluster.brokers],
        voters=[int(each.replica_id) for each in quorum.current_voters],
        acls=_acls(client),
        tiered=_tiered(client, topics),
    )


def _acls(client: Client) -> int | None:
    answer = client.call(
        ApiKey.DESCRIBE_ACLS,
        (1, 3),
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    if answer.error_code == _SECURITY_DISABLED:
        return None
    check(answer.error_code, answer.error_message)
    return sum(len(each.acls) for each in answer.resources)


def _tiered(client: Client, topics: Sequence[str]) -> list[str]:
    if not topics:
        return []
    resources = [{"resource_type": _TOPIC, "resource_name": each, "configuration_keys": [_TIERED]} for each in topics]
    answer = client.call(ApiKey.DESCRIBE_CONFIGS, (1, 4), resources=resources)
    return [
        str(each.resource_name)
        for each in answer.results
        if any(str(one.value).lower() == "true" for one in each.configs)
    ]


def _print(findings: Sequence[TakeOverFinding], *, as_json: bool) -> int:
    printer = FindingsPrinter(_COLUMNS, as_json=as_json)
    printer.findings(findings, _text, asdict)
    stops = any(each.severity == "error" for each in findings)
    counts = severity_counts([each.severity for each in findings], 0, "")
    verdict = "cannot be taken over" if stops else "can be taken over"
    values = {"can_be_taken_over": not stops}
    printer.line(f"{verdict}: {counts}" if counts else verdict, "summary", values, is_bad=stops)
    return 1 if stops else 0


def _text(finding: TakeOverFinding) -> FindingText:
    return FindingText(
        severity=finding.severity,
        kind=finding.kind,
        found=finding.found,
        cells=(finding.kind, finding.where, finding.found, finding.remedy),
        places=(finding.where,),
        details={"remedy": finding.remedy},
    )
