"""The connection that a command line describes: bootstrap addresses, and Kafka's client properties from a file."""

from __future__ import annotations

from pathlib import Path

from stratalog.wire.client import Cluster, ConnectionOptions, client_properties

_WHAT = "--bootstrap-server"


def connection_options(bootstrap_server: str, command_config: Path | None) -> ConnectionOptions:
    """Return how to reach the cluster, and as whom. Raises UsageError, which names the file and the property."""
    properties = {} if command_config is None else client_properties(command_config, "--command-config")
    options = {f"kafka.{name}": value for name, value in properties.items()}
    return ConnectionOptions.of(
        {**options, "kafka.bootstrap.servers": bootstrap_server}, what=_WHAT, where=f"{command_config}: "
    )


def open_cluster(bootstrap_server: str, command_config: Path | None = None) -> Cluster:
    """Connect to the cluster. Raises UnreachableError, AuthenticationError or UsageError."""
    return Cluster(connection_options(bootstrap_server, command_config))
