"""`stratalog tier owner`: whose a bucket is, and an operator's decision about it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from stratalog.broker.metadata import STORE_FILE, MetadataStore
from stratalog.cli.options import JsonLines
from stratalog.cli.out import print_json, print_rows
from stratalog.cli.tier.store import BucketOptions
from stratalog.cli.tier.times import time_text
from stratalog.engine.dirs import stored_cluster_id, stored_node_id
from stratalog.errors import UsageError
from stratalog.remote.ownership import BucketOwner, OwnershipFile, give_up, owners, take_over as take_over_bucket
from stratalog.util import TableColumn

_COLUMNS = (
    TableColumn("generation", is_number=True),
    TableColumn("cluster"),
    TableColumn("why"),
    TableColumn("since", 1),
    TableColumn("brokers that may run", 2),
)


def owner(
    bucket: BucketOptions,
    take_over: Annotated[bool, typer.Option("--take-over", help="Make the cluster of --data-dir the owner.")] = False,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="The data directory of the cluster that is to own the bucket.")
    ] = None,
    give_up_bucket: Annotated[
        bool,
        typer.Option("--give-up", help="Remove the owner, because its cluster is gone for good."),
    ] = False,
    as_json: JsonLines = False,
) -> int:
    """Show which cluster may copy to a bucket and delete from it, or change it.

    Brokers that lose a bucket stop copying and deleting at once, and report it. Stop them first all the same. The
    last line is in force; the lines before it are its history.

    \b
    Examples:
      stratalog tier owner s3://bucket/tiered
      stratalog tier owner s3://bucket/tiered --take-over --data-dir /var/lib/stratalog
      stratalog tier owner s3://bucket/tiered --give-up
    """
    if take_over and give_up_bucket:
        raise UsageError("give either --take-over or --give-up")
    if take_over is (data_dir is None):
        raise UsageError("--take-over and --data-dir need each other: the directory identifies the cluster")
    store = bucket.open().inner
    if data_dir is not None:
        cluster_id, node_id = identity_of(data_dir)
        if cluster_id is None:
            raise UsageError(
                f"{data_dir} is not the data directory of a broker: it has neither meta.properties nor {STORE_FILE}"
            )
        take_over_bucket(store, cluster_id, node_id=node_id)
        OwnershipFile(data_dir).set_read_only(False)
    elif give_up_bucket:
        give_up(store)
    _print(owners(store), as_json)
    return 0


def identity_of(data_dir: Path) -> tuple[str | None, int | None]:
    """Return the ids of the cluster and the node of a data directory, as far as it has any."""
    cluster_id, node_id = stored_cluster_id(data_dir), stored_node_id(data_dir)
    if cluster_id is None and (data_dir / STORE_FILE).is_file():  # restored, and not served yet
        with closing(MetadataStore.open(data_dir)) as store:
            cluster_id = store.cluster_id
    return cluster_id, node_id


def _print(found: list[BucketOwner], as_json: bool) -> None:
    if as_json:
        for each in found:
            print_json(
                {
                    "generation": each.generation,
                    "clusterId": each.cluster_id,
                    "reason": each.reason,
                    "time": each.time_ms,
                    "running": each.running,
                }
            )
        return
    rows = [
        (
            str(each.generation),
            each.cluster_id or "none",
            each.reason,
            time_text(each.time_ms),
            ",".join(map(str, each.running)) or "none",
        )
        for each in found
    ]
    if not rows:
        print("this bucket has no owner; the first broker that tiers to it becomes the owner")
    else:
        print_rows(_COLUMNS, rows, "Owners")
