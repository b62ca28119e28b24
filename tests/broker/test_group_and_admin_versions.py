"""Every version of every group and admin API is answered with a message of that version."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.wire import Wire

from stratalog.broker.apis import load_apis
from stratalog.broker.server.server import Broker
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.protocol import request_class

KEYS = [8, 9, 10, 11, 12, 13, 14, 15, 16, 19, 20, 21, 32, 33, 35, 37, 42, 44, 47, 57, 60, 75]
VERSIONS = [(key, v) for key in KEYS for v in range(load_apis()[key].min_version, load_apis()[key].max_version + 1)]

_PARTITION = {"partition_index": 0, "committed_offset": 1, "offset": 0}
_FETCHED = [{"name": "t", "partition_indexes": (0,)}]

#: What to ask, by API and field; fields that a version lacks are left out.
ASKED: dict[int, dict[str, Any]] = {
    8: {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": [{"name": "t", "partitions": [_PARTITION]}]},
    9: {
        "group_id": "g",
        "topics": _FETCHED,
        "groups": [{"group_id": "g", "topics": None}, {"group_id": "h", "topics": _FETCHED}],
    },
    10: {"key": "g", "coordinator_keys": ("g", "h")},
    11: {"group_id": "g", "session_timeout": 1, "protocol_type": "consumer", "protocols": [{"name": "range"}]},
    12: {"group_id": "g", "member_id": "m"},
    13: {"group_id": "g", "member_id": "m", "members": [{"member_id": "m"}]},
    14: {"group_id": "g", "member_id": "m", "protocol_type": "consumer", "protocol_name": "range"},
    15: {"groups": ("g", "none")},
    16: {},
    19: {
        "topics": [{"name": "made", "num_partitions": 1, "replication_factor": 1}, {"name": "", "num_partitions": 1}],
        "timeout": 1_000,
        "validate_only": True,
    },
    20: {"topic_names": ("none",), "topics": [{"name": "none", "topic_id": None}], "timeout": 1_000},
    21: {"topics": [{"name": "t", "partitions": [_PARTITION]}], "timeout": 1_000},
    32: {
        "resources": [
            {"resource_type": 2, "resource_name": "t", "configuration_keys": None},
            {"resource_type": 4, "resource_name": "1", "configuration_keys": None},
            {"resource_type": 99, "resource_name": "x"},
        ],
        "include_synonyms": True,
    },
    33: {"resources": [{"resource_type": 2, "resource_name": "t"}], "validate_only": True},
    35: {"topics": None},
    37: {
        "topics": [{"name": "t", "count": 2, "assignments": None}, {"name": "none", "count": 2, "assignments": None}],
        "timeout": 1_000,
        "validate_only": True,
    },
    42: {"groups_names": ("none",)},
    44: {
        "resources": [
            {
                "resource_type": 2,
                "resource_name": "t",
                "configs": [{"name": "retention.ms", "config_operation": 0, "value": "1"}],
            }
        ],
        "validate_only": True,
    },
    47: {"group_id": "none"},
    57: {"feature_updates": [{"feature": "metadata.version", "max_version_level": 31}], "timeout": 1_000},
    60: {"endpoint_type": 1},
    75: {"topics": [{"name": "t"}], "response_partition_limit": 10},
}

#: The error at the top of the response that is expected, where it is not 0.
ERRORS = {11: 26, 12: 25, 14: 25, 47: 69}


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    config = {"offsets.topic.num.partitions": "1"}
    with Broker(data_dir=tmp_path_factory.mktemp("versions"), config=config) as broker:
        broker.services.topics.create("t", 1)
        with Wire(broker.bootstrap_servers) as wire:
            yield wire


def _fitting(cls: type[Any], values: dict[str, Any]) -> dict[str, Any]:
    """`values` without what this version lacks, at every depth."""
    fields = {field.name: field for field in dataclasses.fields(cls)}
    fitting: dict[str, Any] = {}
    for name, value in values.items():
        if name in fields:
            part = next((a for a in _arguments(fields[name].type) if dataclasses.is_dataclass(a)), None)
            fitting[name] = [_fitting(part, item) for item in value] if part is not None and value else value  # type: ignore[arg-type]
    return fitting


def _arguments(type_: Any) -> list[Any]:
    inner = getattr(type_, "__args__", ())
    return [leaf for argument in inner for leaf in _arguments(argument)] if inner else [type_]


@pytest.mark.parametrize(("key", "version"), VERSIONS, ids=[f"{ApiKey(key).message}-{v}" for key, v in VERSIONS])
def test_it_is_answered(wire: Wire, key: int, version: int) -> None:
    asked = _fitting(request_class(ApiKey(key), version), ASKED[key])
    response = wire.call(ApiKey(key), version, **asked)
    if hasattr(response, "error_code"):
        expected = ERRORS.get(key, 25 if key == 13 and version < 3 else 0)
        assert int(response.error_code) == expected


def test_all_of_these_apis_are_here() -> None:
    assert set(KEYS) <= set(load_apis())
