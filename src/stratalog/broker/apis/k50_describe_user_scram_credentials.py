"""DescribeUserScramCredentials (50): users with SCRAM credentials, and their iterations. v0."""

from __future__ import annotations

from collections import Counter
from typing import Any

from stratalog.broker.security import SCRAM_HASHES
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import DuplicateResourceError, ResourceNotFoundError

_NUMBERS = {mechanism: number for number, mechanism in enumerate(SCRAM_HASHES, start=1)}


@handles(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0))
async def describe_user_scram_credentials(ctx: RequestContext, request: Any) -> Any:
    credentials = ctx.broker.scram
    asked = Counter(user.name for user in request.users or ()) or Counter(credentials.users())
    results = [_describe(ctx, user, times) async for user, times in ctx.in_turns(asked.items())]
    return ctx.respond(error_code=0, error_message="", results=results)


def _describe(ctx: RequestContext, user: str, times: int) -> Any:
    if times > 1:
        return _refuse(
            ctx,
            user,
            DuplicateResourceError(
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            ),
        )
    found = ctx.broker.scram.of_user(user)
    if not found:
        return _refuse(
            ctx,
            user,
            ResourceNotFoundError(f"Attempt to describe a user credential that does not exist: {user}"),
        )
    infos = [
        ctx.make("CredentialInfo", mechanism=_NUMBERS[mechanism], iterations=credential.iterations)
        for mechanism, credential in found.items()
    ]
    return ctx.make("DescribeUserScramCredentialsResult", user=user, error_code=0, credential_infos=infos)


def _refuse(ctx: RequestContext, user: str, error: DuplicateResourceError | ResourceNotFoundError) -> Any:
    return ctx.make("DescribeUserScramCredentialsResult", user=user, error_code=error.code, error_message=error.reason)
