"""ListPartitionReassignments (46): a single broker never has reassignments. v0 (KIP-455)."""

from __future__ import annotations

from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles


@handles(ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0))
def list_partition_reassignments(ctx: RequestContext, _: Any) -> Any:
    return ctx.respond(error_code=0, error_message=None, topics=[])
