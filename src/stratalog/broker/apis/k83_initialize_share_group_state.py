"""InitializeShareGroupState (83): set a group's start offset of partitions.

v0. The group coordinator sends it to the share coordinator (KIP-932); in a single broker only tools use it.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.share import ShareKey, answer_share_states


@handles(ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions=(0, 0))
async def initialize_share_group_state(ctx: RequestContext, request: Any) -> Any:
    async def initialize(key: ShareKey, asked: Any) -> None:
        await ctx.broker.share_states.initialize(key, asked.state_epoch, asked.start_offset)

    return await answer_share_states(ctx, request, "InitializeStateResult", initialize, takes_empty_topics=True)
