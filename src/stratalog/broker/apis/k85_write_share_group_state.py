"""WriteShareGroupState (85): store a group's state of partitions for their leader (KIP-932).

v0 and v1. v1: how many of the records in flight are done.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.share import ShareKey, ShareWrite, answer_share_states, said_batches

_NOT_SAID = -1


@handles(ApiKey.WRITE_SHARE_GROUP_STATE, versions=(0, 1))
async def write_share_group_state(ctx: RequestContext, request: Any) -> Any:
    async def write(key: ShareKey, asked: Any) -> None:
        done_count = getattr(asked, "delivery_complete_count", _NOT_SAID)
        said = ShareWrite(asked.start_offset, done_count, said_batches(asked.state_batches))
        await ctx.broker.share_states.write(key, asked.state_epoch, asked.leader_epoch, said)

    return await answer_share_states(ctx, request, "WriteStateResult", write)
