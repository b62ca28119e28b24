"""DeleteShareGroupState (86): delete a group's state of partitions (KIP-932). v0."""

from __future__ import annotations

from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.share import ShareKey, answer_share_states


@handles(ApiKey.DELETE_SHARE_GROUP_STATE, versions=(0, 0))
async def delete_share_group_state(ctx: RequestContext, request: Any) -> Any:
    async def delete(key: ShareKey, asked: Any) -> None:  # noqa: ARG001
        await ctx.broker.share_states.delete(key)

    return await answer_share_states(ctx, request, "DeleteStateResult", delete)
