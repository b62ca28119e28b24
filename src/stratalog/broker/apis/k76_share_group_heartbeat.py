"""ShareGroupHeartbeat (76): a member of a share group (KIP-932) joins, stays or leaves.

v1. While the feature `share.version` is 0: UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.described_groups import answer_heartbeat
from stratalog.broker.groups import check_share_protocol, share
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import (
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
    wire_code,
)

#: Errors that have no message in Kafka.
_WORDLESS = (GroupAuthorizationFailedError, TopicAuthorizationFailedError, UnsupportedVersionError)


def _refuse(ctx: RequestContext, request: Any, error: BaseException) -> Any:  # noqa: ARG001
    has_words = isinstance(error, KafkaError) and not isinstance(error, _WORDLESS)
    return ctx.respond(error_code=wire_code(error), error_message=str(error) or None if has_words else None)


@handles(ApiKey.SHARE_GROUP_HEARTBEAT, versions=(1, 1), on_error=_refuse)
async def share_group_heartbeat(ctx: RequestContext, request: Any) -> Any:
    check_share_protocol(ctx.broker)
    heartbeat = share.ShareHeartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        rack_id=request.rack_id,
        topics=request.subscribed_topic_names,
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.peer.client_host}",  # as Java prints an address without a name
    )
    share.check_share_heartbeat(request.group_id, heartbeat)
    return answer_heartbeat(ctx, await ctx.broker.groups.share_heartbeat(request.group_id, heartbeat))
