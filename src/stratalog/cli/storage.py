"""`stratalog storage`: log directories made ready for a broker of a cluster, as kafka-storage does it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.config import INITIAL_METADATA_VERSION, BrokerConfig, parse_properties
from stratalog.errors import UsageError
from stratalog.util import REAL_FILESYSTEM, uuid_from_base64

if TYPE_CHECKING:
    from stratalog.broker.security import ScramCredential


def format_(
    cluster_id: Annotated[
        str, typer.Option("--cluster-id", "-t", metavar="ID", help="The id of the cluster that the broker joins.")
    ],
    config: Annotated[Path, typer.Option("--config", "-c", help="The server.properties file of the broker.")],
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", "-g", help="Accept directories that are formatted for this broker.")
    ] = False,
    add_scram: Annotated[
        list[str] | None,
        typer.Option(
            "--add-scram",
            "-S",
            metavar="M=[...]",
            help="Add a SCRAM user of a broker without a cluster: SCRAM-SHA-512=[name=alice,password=secret].",
        ),
    ] = None,
) -> int:
    """Format the log directories of a broker.

    The command writes meta.properties into each directory of log.dirs, and users into the first one.

    \b
    Example:
      stratalog storage format --cluster-id 5L6g3nShT-eMCtK--X86sw --config server.properties
      stratalog storage format -t ID -c FILE -S 'SCRAM-SHA-512=[name=alice,password=secret]'
    """
    try:
        uuid_from_base64(cluster_id)
    except ValueError as error:
        raise UsageError(f"--cluster-id {cluster_id}: expected the id of a cluster, a base64 UUID ({error})") from None
    try:
        text = REAL_FILESYSTEM.read_bytes(config).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {config}: {getattr(error, 'strerror', None) or error}") from None
    settings = BrokerConfig.from_properties(parse_properties(text, str(config)))
    if not settings.is_set("node.id") and not settings.is_set("broker.id"):
        raise UsageError(f"{config}: node.id is not set")
    paths = [Path(name) for name in settings["log.dirs"] or settings["log.dir"]]
    if not paths:
        raise UsageError(f"{config}: log.dirs is not set")

    # start-up cost
    from stratalog.broker.security import parse_scram_argument
    from stratalog.engine.dirs import format_dir, stored_cluster_id

    users = [parse_scram_argument(text) for text in add_scram or ()]
    if users and (settings.properties.get("process.roles") or "").split(",") == ["broker"]:
        raise UsageError(f"--add-scram: the users of a cluster are its controllers'; format those with it ({config})")
    formatted = [path for path in paths if stored_cluster_id(path) is not None]
    if formatted and not ignore_formatted:
        raise UsageError(
            f"Log directory {formatted[0]} is already formatted. Use --ignore-formatted to ignore this directory and"
            " format the others."
        )
    made = [path for path in paths if format_dir(path, cluster_id=cluster_id, node_id=settings["node.id"])]
    if not made:
        print("All of the log directories are already formatted.")
    for path in made:
        print(f"Formatting {path} for node {settings['node.id']} of cluster {cluster_id}.")
    if users:
        _add_users(paths[0], cluster_id, settings, users)
    return 0


def _add_users(
    directory: Path, cluster_id: str, settings: BrokerConfig, users: list[tuple[str, str, ScramCredential]]
) -> None:
    # start-up cost
    from stratalog.broker.metadata import MetadataStore
    from stratalog.broker.security import ScramUsers

    store = MetadataStore.open(directory, cluster_id=cluster_id, metadata_version=settings[INITIAL_METADATA_VERSION])
    with closing(store):
        ScramUsers(store).change({(mechanism, name): credential for mechanism, name, credential in users})
