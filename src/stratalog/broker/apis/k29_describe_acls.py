"""DescribeAcls (29): access rules that match a filter, by resource.

v1 to v3. v1: types of patterns. v2: flexible. v3: resources of type USER.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from stratalog.broker.access import Acl, AclFilter, names_unknown
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import InvalidRequestError, SecurityDisabledError, wire_code

#: Among more rules, the search is made on a worker thread.
_MANY: Final = 500


def _refuse(ctx: RequestContext, request: Any, error: BaseException) -> Any:
    """Answer an error; like Kafka, close the connection for a filter with an unknown element."""
    if names_unknown(request):
        return None
    return ctx.respond(error_code=wire_code(error), error_message=str(error))


@handles(ApiKey.DESCRIBE_ACLS, versions=(1, 3), on_error=_refuse)
async def describe_acls(ctx: RequestContext, request: Any) -> Any:
    chosen = AclFilter.of(request)
    if names_unknown(request):
        raise InvalidRequestError("the filter has an unknown element")
    access = ctx.broker.access
    if access is None:
        raise SecurityDisabledError("No Authorizer is configured on the broker")
    if chosen.is_unknown_pattern or chosen.is_unknown_entry:
        raise InvalidRequestError("the filter has an unknown element")
    rules = access.authorizer.rules
    if len(rules) > _MANY:
        return await ctx.broker.workers.run(_answer, ctx, rules, chosen)
    return _answer(ctx, rules, chosen)


def _answer(ctx: RequestContext, rules: Iterable[Acl], chosen: AclFilter) -> Any:
    by_pattern: dict[tuple[int, str, int], list[Acl]] = {}
    for acl in filter(chosen.matches, rules):
        by_pattern.setdefault((acl.resource_type, acl.name, acl.pattern_type), []).append(acl)
    return ctx.respond(
        error_code=0,
        error_message=None,
        resources=[
            ctx.make(
                "DescribeAclsResource",
                resource_type=int(resource_type),
                resource_name=name,
                pattern_type=int(pattern_type),
                acls=[
                    ctx.make(
                        "AclDescription",
                        principal=acl.principal,
                        host=acl.host,
                        operation=int(acl.operation),
                        permission_type=int(acl.permission),
                    )
                    for acl in acls
                ],
            )
            for (resource_type, name, pattern_type), acls in by_pattern.items()
        ],
    )
