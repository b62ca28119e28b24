"""Topics and configurations over the wire, in one line each, for tests of admin APIs."""

from __future__ import annotations

from typing import Any

from tests.support.wire import Wire

from stratalog.wire.api_keys import ApiKey


def described(wire: Wire, type_: int, name: str) -> dict[str, Any]:
    """Return the keys of a resource by their names, none of a topic that is not known."""
    resource = {"resource_type": type_, "resource_name": name, "configuration_keys": None}
    response = wire.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=True)
    assert response.results[0].error_code in (0, 3), response
    return {config.name: config for config in response.results[0].configs}


def create(wire: Wire, name: str, partitions: int = 1, *, validate_only: bool = False, **configs: str) -> Any:
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }
    return wire.call(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=30_000, validate_only=validate_only).topics[0]


def alter(
    wire: Wire, type_: int, resource: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> Any:
    configs = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in changes]
    part = {"resource_type": type_, "resource_name": resource, "configs": configs}
    return wire.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[part], validate_only=validate_only).responses[0]


def replace_configs(wire: Wire, type_: int, resource: str, *, validate_only: bool = False, **configs: str) -> Any:
    """AlterConfigs: these are all that is set then."""
    pairs = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    part = {"resource_type": type_, "resource_name": resource, "configs": pairs}
    return wire.call(ApiKey.ALTER_CONFIGS, 2, resources=[part], validate_only=validate_only).responses[0]


def update_level(wire: Wire, level: int, kind: int = 1, *, validate_only: bool = False) -> Any:
    """UpdateFeatures: `metadata.version` to a level; kind 1 is an upgrade, 2 a safe downgrade, 3 an unsafe one."""
    update = {"feature": "metadata.version", "max_version_level": level, "upgrade_type": kind}
    return wire.call(ApiKey.UPDATE_FEATURES, 2, feature_updates=[update], timeout=10_000, validate_only=validate_only)
