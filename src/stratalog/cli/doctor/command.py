"""The command line of `stratalog doctor`."""

from __future__ import annotations

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
    as_json: JsonLines = False,
) -> int:
    """Say what is wrong with a directory, a broker or a bucket, most urgent first, and the command that mends it.

    Give one or more of --data-dir, --bootstrap-server and --remote. Nothing is changed. A directory is checked as by
    fsck, unless a broker has it open; brokers are asked for partitions without a leader, failed and full directories,
    and transactions that hang; a bucket is checked as by tier audit.

    Exit code 0: nothing is wrong, or notes only.
    Exit code 1: errors or warnings.
    Exit code 2: wrong arguments.

    \b
    Examples:
      stratalog doctor --data-dir /var/lib/stratalog
      stratalog doctor -b localhost:9092 --remote s3://bucket/tiered --json
    """
    directories = list(dict.fromkeys(data_dir or ()))
    if not directories and remote is None and bootstrap_server is None:
        bootstrap_server = bootstrap_from_environment()
    if not directories and bootstrap_server is None and remote is None:
        raise UsageError("give what to look at: --data-dir DIR, --bootstrap-server HOST:PORT or --remote URL")
    for path in directories:
        require_log_directory(path)
    from stratalog.cli.doctor import diagnosis, places  # they load numpy, which --help can do without
    from stratalog.cli.tier import open_data_dirs, open_store
    from stratalog.jobs import Severity

    found = [each for path in directories for each in places.examine_directory(path)]
    if bootstrap_server is not None:
        found += places.examine_brokers(bootstrap_server, command_config)
    if remote is not None:
        try:
            store = open_store(remote, remote_option)
        except RemoteStorageError as error:
            found.append(places.unreadable(remote, error))
        else:
            found += places.examine_bucket(remote, store, open_data_dirs(directories))
    looked_at = [*map(str, directories), *(each for each in (bootstrap_server, remote) if each is not None)]
    diagnosis.print_all(found, looked_at, as_json=as_json)
    return 1 if any(each.severity > Severity.NOTE for each in found) else 0
