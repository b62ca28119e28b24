"""The connection that a command line describes: bootstrap addresses, and Kafka's client properties from a file."""

from __future__ import annotations

from pathlib import Path

from stratalog.config import parse_properties
from stratalog.errors import UsageError
from stratalog.util import REAL_FILESYSTEM
from stratalog.wire.client import Cluster, ConnectionOptions

_WHAT = "--bootstrap-server"


def connection_options(bootstrap_server: str, command_config: Path | None) -> ConnectionOptions:
    """Return how to reach the cluster, and as whom. Raises UsageError, which names the file and the property."""
    properties = {} if command_config is None else _client_properties(command_config)
    options = {f"kafka.{name}": value for name, value in properties.items()}
    return ConnectionOptions.of(
        {**options, "kafka.bootstrap.servers": bootstrap_server}, what=_WHAT, where=f"{command_config}: "
    )


def open_cluster(bootstrap_server: str, command_config: Path | None = None) -> Cluster:
    """Connect to the cluster. Raises UnreachableError, AuthenticationError or UsageError."""
    return Cluster(connection_options(bootstrap_server, command_config))


def _client_properties(path: Path) -> dict[str, str]:
    try:
        text = REAL_FILESYSTEM.read_bytes(path).decode()
    except UnicodeDecodeError:
        raise UsageError(f"--command-config {path}: expected a text file of key=value lines") from None
    except OSError as error:
        raise UsageError(f"--command-config {path}: {error.strerror or error}") from None
    return parse_properties(text, str(path))
