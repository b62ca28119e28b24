"""Guards of the APIs of access rules, quotas, credentials and delegation tokens."""

from __future__ import annotations

from typing import Any

from stratalog.broker.access.acls import AclOperation as Op
from stratalog.broker.access.entry_guards import CLUSTER_CODE, TOKEN, USER
from stratalog.broker.access.guard import Asker, GuardStep, only
from stratalog.broker.security import Principal, may_ask_for_tokens
from stratalog.errors import DelegationTokenAuthorizationFailedError


def refused_acl(asker: Asker, _entry: Any) -> Any:
    return asker.ctx.make("AclCreationResult", error_code=CLUSTER_CODE, error_message="Cluster authorization failed.")


def refused_acl_filter(asker: Asker, _entry: Any) -> Any:
    return asker.ctx.make(
        "DeleteAclsFilterResult", error_code=CLUSTER_CODE, error_message="Cluster authorization failed."
    )


def refused_quota(asker: Asker, entry: Any) -> Any:
    make = asker.ctx.make
    entity = [make("EntityData", entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity]
    return make("EntryData", entity=entity, error_code=CLUSTER_CODE, error_message="Cluster authorization failed.")


def _refused_user(asker: Asker, name: str) -> Any:
    return asker.ctx.make("AlterUserScramCredentialsResult", user=name, error_code=CLUSTER_CODE)


def describe_scram(asker: Asker, request: Any) -> GuardStep:
    if asker.may_cluster(Op.DESCRIBE):
        return GuardStep(request)
    make = asker.ctx.make
    refused = [make("DescribeUserScramCredentialsResult", error_code=CLUSTER_CODE) for _ in request.users or ()]
    return GuardStep(answer=asker.ctx.respond(error_code=CLUSTER_CODE, results=refused))


def alter_scram(asker: Asker, request: Any) -> GuardStep:
    if asker.may_cluster(Op.ALTER):
        return GuardStep(request)
    users = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    return GuardStep(answer=asker.ctx.respond(results=[_refused_user(asker, name) for name in users]))


def create_token(asker: Asker, request: Any) -> GuardStep:
    """Check CREATE_TOKENS for tokens of another owner, if the client may create tokens at all."""
    ctx = asker.ctx
    name = getattr(request, "owner_principal_name", None)
    if not name or not may_ask_for_tokens(ctx.peer):
        return GuardStep(request)
    owner = Principal(request.owner_principal_type or "", name)
    if owner == ctx.principal or asker.may(Op.CREATE_TOKENS, USER, str(owner)):
        return GuardStep(request)
    return GuardStep(
        answer=ctx.respond(
            error_code=DelegationTokenAuthorizationFailedError.code,
            principal_type=owner.kind,
            principal_name=owner.name,
            token_requester_principal_type=ctx.principal.kind,
            token_requester_principal_name=ctx.principal.name,
            issue_timestamp=-1,
            expiry_timestamp=-1,
            max_timestamp=-1,
        )
    )


def describe_tokens(asker: Asker, request: Any) -> GuardStep:
    """Hide tokens of other owners, unless the client may see them or all of their owner's."""

    def is_seen(token: Any) -> bool:
        known = asker.ctx.broker.tokens.get(token.token_id)
        return known is not None and (
            known.concerns(asker.ctx.principal)
            or asker.may(Op.DESCRIBE, TOKEN, known.id)
            or asker.may(Op.DESCRIBE_TOKENS, USER, str(known.owner))
        )

    return GuardStep(request, only("tokens", is_seen))
