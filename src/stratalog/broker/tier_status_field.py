"""Tier status in DescribeLogDirs: a tagged field of our own, beside that of `remote_sizes`, for our own client only.

Its data is the JSON of `/api/tier-status` with the tiered ones of the partitions that were asked for: so `stratalog
tier status` needs no web address.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from stratalog.engine import LogManager, Partition
from stratalog.engine.tiering import status_json, tier_statuses

TAG = 10_001
#: Clients that get it; others have no use for it, and it takes some hundred bytes a partition.
CLIENT_ID = "stratalog"


def encoded(logs: LogManager, partitions: Iterable[Partition]) -> bytes:
    """Return the field for these partitions."""
    wanted = {(partition.topic, partition.partition) for partition in partitions}
    found = [status for status in tier_statuses(logs) if (status.topic, status.partition) in wanted]
    return json.dumps(status_json(found), separators=(",", ":")).encode()
