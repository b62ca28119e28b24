"""CreateAcls (30): add access rules; each is durable and in force before the response is sent.

v1 to v3. v1: types of patterns. v2: flexible. v3: resources of type USER.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.access import Acl, acl_of, check_new_acl
from stratalog.broker.loop_turns import ELEMENTS_A_TURN, pieces_of
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.config import is_large_index_format_supported
from stratalog.errors import InvalidRequestError, KafkaError, SecurityDisabledError


@handles(ApiKey.CREATE_ACLS, versions=(1, 3))
async def create_acls(ctx: RequestContext, request: Any) -> Any:
    await ctx.beside(_check_known, request)
    access = ctx.broker.access
    if access is None:
        refusal = SecurityDisabledError("No Authorizer is configured.")
        return await ctx.beside(_answer, ctx, [refusal] * len(request.creations))
    # Ranges of addresses and large segments came with the same level, 4.4-IV1.
    ranges = is_large_index_format_supported(ctx.broker.metadata.metadata_version)
    good, errors = await ctx.beside(_checked, request, ranges)
    async with access.changing:
        try:
            await ctx.broker.workers.run(ctx.broker.store.add_acls, good)
        except KafkaError as refused:  # the disk is full
            return await ctx.beside(_answer, ctx, [error or refused for error in errors])
        # As in Kafka, rules come into force one after another.
        async for piece in ctx.in_turns(pieces_of(good), weight=ELEMENTS_A_TURN):
            access.authorizer.add(piece)
    return await ctx.beside(_answer, ctx, errors)


def _check_known(request: Any) -> None:
    if any(
        not (each.resource_type and each.resource_pattern_type and each.operation and each.permission_type)
        for each in request.creations
    ):
        raise InvalidRequestError("a rule has an unknown element")


def _checked(request: Any, ranges: bool) -> tuple[list[Acl], list[KafkaError | None]]:
    """Return the valid rules, and the error of each rule."""
    acls = [_asked(each) for each in request.creations]
    errors = [_error_of(acl, ranges=ranges) for acl in acls]
    return [acl for acl, error in zip(acls, errors, strict=True) if error is None], errors


def _asked(creation: Any) -> Acl:
    return acl_of(
        resource_type=creation.resource_type,
        name=creation.resource_name,
        pattern_type=creation.resource_pattern_type,
        principal=creation.principal,
        host=creation.host,
        operation=creation.operation,
        permission=creation.permission_type,
    )


def _error_of(acl: Acl, *, ranges: bool) -> KafkaError | None:
    try:
        check_new_acl(acl, ranges=ranges)
    except KafkaError as error:
        return error
    return None


def _answer(ctx: RequestContext, errors: list[Any]) -> Any:
    return ctx.respond(
        results=[
            ctx.make(
                "AclCreationResult",
                error_code=0 if error is None else error.code,
                error_message=None if error is None else str(error),
            )
            for error in errors
        ]
    )
