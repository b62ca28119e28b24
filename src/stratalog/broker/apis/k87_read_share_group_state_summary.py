"""ReadShareGroupStateSummary (87): a group's start offsets of partitions (KIP-932).

v0 and v1. v1: how many of the records in flight are done. Without a state the offset is -1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.share import ShareKey, answer_share_states

_NOWHERE = -1


@handles(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions=(0, 1))
async def read_share_group_state_summary(ctx: RequestContext, request: Any) -> Any:
    def summary(state_epoch: int, leader_epoch: int, start_offset: int, done_count: int) -> Mapping[str, Any]:
        answer = {"state_epoch": state_epoch, "leader_epoch": leader_epoch, "start_offset": start_offset}
        return answer if ctx.version == 0 else {**answer, "delivery_complete_count": done_count}

    async def read(key: ShareKey, asked: Any) -> Mapping[str, Any]:  # noqa: ARG001
        found = await ctx.broker.share_states.summary(key)
        if found is None:
            return summary(0, 0, _NOWHERE, _NOWHERE)
        return summary(found.state_epoch, found.leader_epoch, found.start_offset, found.done_count)

    refused = summary(0, 0, 0, _NOWHERE)
    return await answer_share_states(ctx, request, "ReadStateSummaryResult", read, **refused)
