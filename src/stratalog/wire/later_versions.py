"""Versions of messages that kio does not have yet, each made from kio's classes of the version before.

A class of kio is a dataclass whose fields say how they are written; a later one has the same fields, some changed, some
more. What is nested in other classes is made first. Source: the schemas of Kafka 4.4.0's messages.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, Final
from uuid import UUID

_VERSION: Final = "__version__"


def _module_of(schema: str, version: int, kind: str) -> ModuleType:
    return importlib.import_module(f"kio.schema.{schema}.v{version}.{kind}")


def _field(name: str, kind: str, of_type: Any, default: Any = dataclasses.MISSING) -> tuple[str, Any, Any]:
    return name, of_type, dataclasses.field(metadata={"kafka_type": kind}, default=default)


def _primitive(name: str) -> Any:
    return getattr(importlib.import_module("kio.static.primitive"), name)


def _fields_of(cls: Any) -> dict[str, tuple[str, Any, Any]]:
    """Return what makes each field of a class again, by its name."""
    made = {}
    for each in dataclasses.fields(cls):
        again = dataclasses.field(metadata=each.metadata, default=each.default, default_factory=each.default_factory)
        made[each.name] = (each.name, each.type, again)
    return made


def _later(cls: Any, fields: Mapping[str, tuple[str, Any, Any]], version: int) -> Any:
    facts = {name: getattr(cls, name) for name in cls.__annotations__ if name.startswith("__")}
    facts[_VERSION] = type(cls.__version__)(version)
    return dataclasses.make_dataclass(
        cls.__name__, list(fields.values()), namespace=facts, frozen=True, slots=True, kw_only=True
    )


def _with(before: ModuleType, *classes: Any) -> ModuleType:
    """Return a module like `before`, with later classes in the place of those of their names."""
    module = ModuleType(before.__name__)
    module.__dict__.update(before.__dict__)
    module.__dict__.update({cls.__name__: cls for cls in classes})
    return module


def _with_elements(before: ModuleType, cls: Any, array: str, element: Any, version: int) -> ModuleType:
    """Return a module like `before`, with a later message whose array has elements of the later class `element`."""
    fields = _fields_of(cls)
    name, _, facts = fields[array]
    fields[array] = (name, tuple.__class_getitem__((element, ...)), facts)
    return _with(before, element, _later(cls, fields, version))


def _heartbeat_request(before: ModuleType) -> ModuleType:
    cls = before.StreamsGroupHeartbeatRequest
    return _with(before, _later(cls, _fields_of(cls), 1))


def _heartbeat_response(before: ModuleType) -> ModuleType:
    """Make the lag an int64 behind the interval, and let the client be asked for its topology (KIP-1331)."""
    cls = before.StreamsGroupHeartbeatResponse
    fields: dict[str, tuple[str, Any, Any]] = {}
    for name, each in _fields_of(cls).items():
        if name == "acceptable_recovery_lag":
            continue
        fields[name] = each
        if name == "task_offset_interval":
            lag = "acceptable_recovery_lag"
            fields[lag] = _field(lag, "int64", _primitive("i64"), -1)
        elif name == "warmup_tasks":
            wanted = "topology_description_required"
            fields[wanted] = _field(wanted, "bool", bool, default=False)
    return _with(before, _later(cls, fields, 1))


def _describe_request(before: ModuleType) -> ModuleType:
    cls = before.StreamsGroupDescribeRequest
    name = "include_topology_description"
    return _with(before, _later(cls, {**_fields_of(cls), name: _field(name, "bool", bool, default=False)}, 1))


def _describe_response(before: ModuleType) -> ModuleType:
    """Add a described topology, always null here: the byte -1 in its place; its status, and the assignor."""
    group = before.DescribedGroup
    fields = _fields_of(group)
    int8 = _primitive("i8")
    for name in ("topology_description", "topology_description_status"):
        fields[name] = _field(name, "int8", int8, -1 if name == "topology_description" else 0)
    fields["assignor_name"] = _field("assignor_name", "string", str | None, None)
    later_group = _later(group, fields, 1)
    return _with_elements(before, before.StreamsGroupDescribeResponse, "groups", later_group, 1)


def _commit_by_id(before: ModuleType, kind: str) -> ModuleType:
    """Name topics by their ids instead of their names (KIP-848)."""
    topic = getattr(before, f"TxnOffsetCommit{kind}Topic")
    fields = _fields_of(topic)
    later_topic = _later(
        topic, {"topic_id": _field("topic_id", "uuid", UUID | None), "partitions": fields["partitions"]}, 6
    )
    return _with_elements(before, getattr(before, f"TxnOffsetCommit{kind}"), "topics", later_topic, 6)


def _api_versions_request(before: ModuleType) -> ModuleType:
    """Let the client name the broker that it means to reach (KIP-1242)."""
    cls = before.ApiVersionsRequest
    fields = _fields_of(cls)
    fields["cluster_id"] = _field("cluster_id", "string", str | None, None)
    fields["node_id"] = _field("node_id", "int32", _primitive("i32"), -1)
    return _with(before, _later(cls, fields, 5))


def _api_versions_response(before: ModuleType) -> ModuleType:
    cls = before.ApiVersionsResponse
    return _with(before, _later(cls, _fields_of(cls), 5))


def _delete_groups_request(before: ModuleType) -> ModuleType:
    cls = before.DeleteGroupsRequest
    return _with(before, _later(cls, _fields_of(cls), 3))


def _delete_groups_response(before: ModuleType) -> ModuleType:
    """Add a message to the error code of each group."""
    result = before.DeletableGroupResult
    fields = _fields_of(result)
    fields["error_message"] = _field("error_message", "string", str | None, None)
    later_result = _later(result, fields, 3)
    return _with_elements(before, before.DeleteGroupsResponse, "results", later_result, 3)


#: What makes a version of a message from the version before it, by schema, version and kind.
LATER_VERSIONS: Final[Mapping[tuple[str, int, str], Callable[[ModuleType], ModuleType]]] = {
    ("streams_group_heartbeat", 1, "request"): _heartbeat_request,
    ("streams_group_heartbeat", 1, "response"): _heartbeat_response,
    ("streams_group_describe", 1, "request"): _describe_request,
    ("streams_group_describe", 1, "response"): _describe_response,
    ("api_versions", 5, "request"): _api_versions_request,
    ("api_versions", 5, "response"): _api_versions_response,
    ("delete_groups", 3, "request"): _delete_groups_request,
    ("delete_groups", 3, "response"): _delete_groups_response,
    ("txn_offset_commit", 6, "request"): partial(_commit_by_id, kind="Request"),
    ("txn_offset_commit", 6, "response"): partial(_commit_by_id, kind="Response"),
}


def message_module_of(schema: str, version: int, kind: str) -> ModuleType:
    """Return the module with the classes of a message: kio's, or one that is made here."""
    later = LATER_VERSIONS.get((schema, version, kind))
    return _module_of(schema, version, kind) if later is None else later(message_module_of(schema, version - 1, kind))
