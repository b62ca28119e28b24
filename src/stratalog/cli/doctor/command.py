"""The command line of `stratalog doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stratalog.cli.fsck import require_log_directory
from stratalog.cli.options import (
    CommandConfig,
    DataDirs,
    JsonLines,
    OptionalBootstrapServer,
    Remote,
    RemoteOptions,
    bootstrap_from_environment,
)
from stratalog.errors import RemoteStorageError, UsageError


def doctor(
    data_dir: DataDirs = None,
    bootstrap_server: OptionalBootstrapServer = None,
    remote: Remote = None,
    command_config: CommandConfig = None,
    remote_option: RemoteOptions = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A broker's server.properties.")
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="Start a Spark session on this machine, and check it.")
    ] = False,
    as_json: JsonLines = False,
) -> int:
    """Find problems of a directory, a broker or a bucket, most urgent first, with the commands that fix them.

    Give one or more of --data-dir, --bootstrap-server, --remote, --config and --spark. Nothing is changed. A directory
    is checked as by fsck, unless a broker has it open, together with its broker's metadata. Brokers are queried for
    partitions without a leader, replicas that are behind, fenced brokers, failed and full directories, failing or
    waiting uploads, hanging transactions, and topic settings without effect. A bucket is checked as by tier audit, a
    configuration as at broker startup, Spark as by spark doctor.

    Exit code 0: nothing is wrong, or notes only.
    Exit code 1: errors or warnings.
    Exit code 2: wrong arguments.

    \b
    Examples:
      stratalog doctor --data-dir /var/lib/stratalog --config server.properties
      stratalog doctor -b localhost:9092 --remote s3://bucket/tiered --json
    """
    directories = list(dict.fromkeys(data_dir or ()))
    is_given = bool(directories) or remote is not None or config is not None or spark
    if bootstrap_server is None and not is_given:
        bootstrap_server = bootstrap_from_environment()
    if bootstrap_server is None and not is_given:
        raise UsageError(
            "no target: give --data-dir DIR, --bootstrap-server HOST:PORT, --remote URL, --config FILE or --spark"
        )
    for path in directories:
        require_log_directory(path)
    # --help does not need what these load
    from stratalog.cli.doctor import brokers, diagnosis, places, sessions, settings
    from stratalog.cli.tier import open_data_dirs, open_store
    from stratalog.jobs import Severity

    broker, of_settings = (None, []) if config is None else settings.examine_settings(config)
    found = [each for path in directories for each in places.examine_directory(path, broker)]
    if bootstrap_server is not None:
        found += brokers.examine_brokers(bootstrap_server, command_config)
    if remote is not None:
        try:
            store = open_store(remote, remote_option)
        except RemoteStorageError as error:
            found.append(places.unreadable(remote, error))
        else:
            found += places.examine_bucket(remote, store, open_data_dirs(directories))
    found += of_settings
    if spark:
        found += sessions.examine_spark()
    named = (bootstrap_server, remote, None if config is None else str(config), "Spark" if spark else None)
    looked_at = [*map(str, directories), *(each for each in named if each is not None)]
    diagnosis.print_all(found, looked_at, as_json=as_json)
    return 1 if any(each.severity > Severity.NOTE for each in found) else 0
