"""The connection that a command line describes: bootstrap addresses, and Kafka's client properties from a file."""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.cli.option_groups import OptionGroup
from stratalog.cli.options import BootstrapServer, CommandConfig
from stratalog.wire.client import Cluster, ConnectionOptions, client_properties


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions(OptionGroup):
    """How a command reaches a cluster, and as whom."""

    bootstrap_server: BootstrapServer
    command_config: CommandConfig = None

    def connection(self) -> ConnectionOptions:
        """Return the options of the client. Raises UsageError, which names the file and the property."""
        config = self.command_config
        properties = {} if config is None else client_properties(config, "--command-config")
        options = {f"kafka.{name}": value for name, value in properties.items()}
        options["kafka.bootstrap.servers"] = self.bootstrap_server
        return ConnectionOptions.of(options, what="--bootstrap-server", where=f"{config}: ")

    def open(self) -> Cluster:
        """Connect to the cluster. Raises UnreachableError, AuthenticationError or UsageError."""
        return Cluster(self.connection())
