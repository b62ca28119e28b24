"""DeleteShareGroupOffsets (92): delete the offsets of topics of a share group (KIP-932) without members.

v0. While the feature `share.version` is 0: UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from stratalog.broker.groups import check_share_protocol
from stratalog.broker.server import ApiKey, RequestContext, handles

_NO_TOPIC = UUID(int=0)


@handles(ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions=(0, 0))
async def delete_share_group_offsets(ctx: RequestContext, request: Any) -> Any:
    check_share_protocol(ctx.broker)
    names = [topic.topic_name for topic in request.topics]
    deleted = await ctx.broker.groups.delete_share_offsets(request.group_id, names)
    return ctx.respond(
        error_code=0,
        responses=[
            ctx.make(
                "DeleteShareGroupOffsetsResponseTopic",
                topic_name=each.name,
                topic_id=each.topic_id or _NO_TOPIC,
                error_code=0 if each.error is None else each.error.code,
                error_message=None if each.error is None else str(each.error),
            )
            for each in deleted
        ],
    )
