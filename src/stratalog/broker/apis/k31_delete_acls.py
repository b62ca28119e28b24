"""DeleteAcls (31): delete and return the access rules that match filters.

v1 to v3. v1: types of patterns. v2: flexible. v3: resources of type USER.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.access import Acl, AclFilter, names_unknown
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import InvalidRequestError, KafkaError, SecurityDisabledError


@handles(ApiKey.DELETE_ACLS, versions=(1, 3))
async def delete_acls(ctx: RequestContext, request: Any) -> Any:
    filters = [AclFilter.of(each) for each in request.filters]
    if any(map(names_unknown, request.filters)):
        raise InvalidRequestError("a filter has an unknown element")
    access = ctx.broker.access
    if access is None:
        refusal = SecurityDisabledError("No Authorizer is configured.")
        return ctx.respond(filter_results=[_result(ctx, refusal, ()) for _ in request.filters])
    if any(chosen.is_unknown_pattern or chosen.is_unknown_entry for chosen in filters):
        raise InvalidRequestError("a filter has an unknown element")
    async with access.changing:
        found = [access.authorizer.matching(chosen) for chosen in filters]
        gone = list(dict.fromkeys(acl for acls in found for acl in acls))
        try:
            await ctx.broker.workers.run(ctx.broker.store.remove_acls, gone)
        except KafkaError as refused:  # the disk is full
            return ctx.respond(filter_results=[_result(ctx, refused, ()) for _ in found])
        access.authorizer.remove(gone)
    return ctx.respond(filter_results=[_result(ctx, None, acls) for acls in found])


def _result(ctx: RequestContext, error: KafkaError | None, acls: list[Acl] | tuple[Acl, ...]) -> Any:
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
