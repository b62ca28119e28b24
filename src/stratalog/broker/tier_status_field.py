"""Tier status in DescribeLogDirs: our own tagged field, besides that of `remote_sizes`, for our own client only.

Its data is the JSON of `/api/tier-status` for the tiered ones of the requested partitions, so that `stratalog tier
status` needs no web address.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from stratalog.engine import LogManager, Partition

TAG = 10_001
#: Only this client gets it: it takes some hundred bytes per partition.
CLIENT_ID = "stratalog"


def encoded(logs: LogManager, partitions: Iterable[Partition]) -> bytes:
    """Return the field for these partitions."""
    # Most of the remote tier, which brokers without one do not load.
    from stratalog.engine.tiering import status_json, tier_statuses

    wanted = {(partition.topic, partition.partition) for partition in partitions}
    found = [status for status in tier_statuses(logs) if (status.topic, status.partition) in wanted]
    return json.dumps(status_json(found), separators=(",", ":")).encode()
