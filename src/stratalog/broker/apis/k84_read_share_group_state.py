"""ReadShareGroupState (84): a group's state of partitions, for their new leader (KIP-932).

v0. The leader epoch of the request is stored, which fences earlier leaders.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.share import ShareKey, answer_share_states


@handles(ApiKey.READ_SHARE_GROUP_STATE, versions=(0, 0))
async def read_share_group_state(ctx: RequestContext, request: Any) -> Any:
    async def read(key: ShareKey, asked: Any) -> Mapping[str, Any]:
        found = await ctx.broker.share_states.read(key, asked.leader_epoch)
        batches = [
            ctx.make(
                "StateBatch",
                first_offset=batch.first,
                last_offset=batch.last,
                delivery_state=batch.state,
                delivery_count=batch.delivery_count,
            )
            for batch in found.batches
        ]
        return {
            "state_epoch": found.state_epoch,
            "start_offset": found.start_offset,
            "state_batches": tuple(batches),
        }

    return await answer_share_states(
        ctx, request, "ReadStateResult", read, state_epoch=0, start_offset=0, state_batches=()
    )
