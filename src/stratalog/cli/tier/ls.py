"""`stratalog tier ls`: the topics, partitions and segments that a bucket holds."""

from __future__ import annotations

from stratalog.cli.tables import print_json
from stratalog.cli.tier.store import Json, StoreOptions, UrlArgument, open_store
from stratalog.remote.catalog import list_remote_segments


def ls(url: UrlArgument, store_option: StoreOptions = None, as_json: Json = False) -> int:
    """List what a bucket holds.

    \b
    Example:
      stratalog tier ls s3://bucket/tiered
    """
    for manifest in list_remote_segments(open_store(url, store_option), covered=True):
        print_json({"key": manifest.key()}) if as_json else print(manifest.key())
    return 0
