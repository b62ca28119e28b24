"""DeleteAcls (31): delete and return the access rules that match filters.

v1 to v3. v1: types of patterns. v2: flexible. v3: resources of type USER.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from stratalog.broker.access import Acl, AclFilter, names_unknown
from stratalog.broker.loop_turns import ELEMENTS_A_TURN, pieces_of
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import InvalidRequestError, KafkaError, SecurityDisabledError

#: Rules that are compared with a filter in the time of a usual element of a request.
_RULES_AN_ELEMENT: Final = 10


@handles(ApiKey.DELETE_ACLS, versions=(1, 3))
async def delete_acls(ctx: RequestContext, request: Any) -> Any:
    filters, has_unknown = await ctx.beside(_filters, request)
    access = ctx.broker.access
    if access is None:
        refusal = SecurityDisabledError("No Authorizer is configured.")
        return await ctx.beside(_answer, ctx, refusal, [()] * len(filters))
    if has_unknown:
        raise InvalidRequestError("a filter has an unknown element")
    async with access.changing:
        weight = 1 + len(access.authorizer) // _RULES_AN_ELEMENT
        found = [access.authorizer.matching(chosen) async for chosen in ctx.in_turns(filters, weight=weight)]
        gone = list(dict.fromkeys(acl for acls in found for acl in acls))
        try:
            await ctx.broker.workers.run(ctx.broker.store.remove_acls, gone)
        except KafkaError as refused:  # the disk is full
            return await ctx.beside(_answer, ctx, refused, [()] * len(filters))
        # As in Kafka, rules lose their force one after another.
        async for piece in ctx.in_turns(pieces_of(gone), weight=ELEMENTS_A_TURN):
            access.authorizer.remove(piece)
    return await ctx.beside(_answer, ctx, None, found)


def _filters(request: Any) -> tuple[list[AclFilter], bool]:
    """Return the filters, and whether one has an element that only an authorizer refuses."""
    filters = [AclFilter.of(each) for each in request.filters]
    if any(map(names_unknown, request.filters)):
        raise InvalidRequestError("a filter has an unknown element")
    return filters, any(chosen.is_unknown_pattern or chosen.is_unknown_entry for chosen in filters)


def _answer(ctx: RequestContext, error: KafkaError | None, found: Sequence[Sequence[Acl]]) -> Any:
    return ctx.respond(filter_results=[_result(ctx, error, acls) for acls in found])


def _result(ctx: RequestContext, error: KafkaError | None, acls: Sequence[Acl]) -> Any:
    return ctx.make(
        "DeleteAclsFilterResult",
        error_code=0 if error is None else error.code,
        error_message=None if error is None else str(error),
        matching_acls=[
            ctx.make(
                "DeleteAclsMatchingAcl",
                error_code=0,
                error_message=None,
                resource_type=int(acl.resource_type),
                resource_name=acl.name,
                pattern_type=int(acl.pattern_type),
                principal=acl.principal,
                host=acl.host,
                operation=int(acl.operation),
                permission_type=int(acl.permission),
            )
            for acl in acls
        ],
    )
