"""Notable events, and the cluster: brokers, controllers, and configuration of this broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from stratalog.broker.server import ApiKey
from stratalog.errors import StratalogError
from stratalog.web.declarations import Console
from stratalog.web.fields import choice, words
from stratalog.web.viewer import ConsoleViewer, check_code

_BROKER: Final = 4
EVENTS_FIELDS = (
    choice("level", ("all", "warning", "error", "info")),
    words("q", longest=500, help="Part of the line."),
)
_LEVELS: Final = {"warning": ("warning", "error", "critical"), "error": ("error", "critical"), "info": ("info",)}


def events(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return notable events, newest first."""
    viewer.check_cluster()
    query, levels = values["q"].lower(), _LEVELS.get(values["level"])
    found = [
        {
            "atMs": each.at_ms,
            "firstMs": each.first_ms,
            "level": each.level,
            "source": each.source,
            "text": each.text,
            "times": each.times,
        }
        for each in console.events.newest()
        if (levels is None or each.level in levels) and query in each.text.lower()
    ]
    return {"events": found, "found": len(found)}


def cluster(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    """Return the brokers of the cluster, its controllers, and the configuration of this broker."""
    answer = viewer.call(ApiKey.DESCRIBE_CLUSTER, 2, endpoint_type=1, include_fenced_brokers=True)
    check_code(int(answer.error_code), answer.error_message)
    features = viewer.broker.metadata.features
    return {
        "clusterId": answer.cluster_id,
        "controllerId": answer.controller_id,
        "nodeId": viewer.broker.node_id,
        "brokers": [
            {
                "id": each.broker_id,
                "host": each.host,
                "port": each.port,
                "rack": each.rack,
                "isFenced": bool(each.is_fenced),
                "isController": each.broker_id == answer.controller_id,
                "kind": "stratalog" if each.broker_id == viewer.broker.node_id else "another broker",
            }
            for each in answer.brokers
        ],
        "controllers": _controllers(viewer),
        "metadataVersion": features.metadata_version,
        "features": dict(sorted(features.others.items())),
        "settings": _settings(viewer),
    }


def _controllers(viewer: ConsoleViewer) -> list[dict[str, Any]]:
    """Return the voters of the controllers' quorum; none without controllers, or without access."""
    try:
        answer = viewer.call(
            ApiKey.DESCRIBE_QUORUM,
            1,
            topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}],
        )
        partition = answer.topics[0].partitions[0]
        check_code(int(answer.error_code))
        check_code(int(partition.error_code))
    except (StratalogError, IndexError):
        return []
    return [
        {
            "id": voter.replica_id,
            "isLeader": voter.replica_id == partition.leader_id,
            "logEndOffset": voter.log_end_offset,
        }
        for voter in partition.current_voters
    ]


def _settings(viewer: ConsoleViewer) -> list[dict[str, Any]]:
    """Return the configuration of this broker; empty without access."""
    answer = viewer.call(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        resources=[{"resource_type": _BROKER, "resource_name": str(viewer.broker.node_id)}],
        include_documentation=True,
    ).results[0]
    if int(answer.error_code):
        return []
    return [
        {
            "name": each.name,
            "value": None if each.is_sensitive else each.value,
            "isSensitive": bool(each.is_sensitive),
            "help": each.documentation or "",
        }
        for each in answer.configs
        if int(each.config_source) != 5
    ]
