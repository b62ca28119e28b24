"""`stratalog acls`: list, add and remove access rules. Options are those of kafka-acls."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar

import typer

from stratalog.broker.access import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
    acl_of_message,
)
from stratalog.cli.connection import ClusterOptions
from stratalog.cli.option_groups import OptionGroup
from stratalog.cli.options import DryRun, Json
from stratalog.cli.out import print_json
from stratalog.errors import UsageError
from stratalog.util import print_table
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, check

_VERSIONS = (1, 3)
_ANY = "*"

Names = list[str] | None
TopicNames = Annotated[Names, typer.Option("--topic", metavar="T", help="A topic, or * for all.")]
GroupNames = Annotated[Names, typer.Option("--group", metavar="G", help="A group, or * for all.")]
TransactionalIds = Annotated[Names, typer.Option("--transactional-id", metavar="ID", help="A transactional id.")]
Tokens = Annotated[Names, typer.Option("--delegation-token", metavar="ID", help="A delegation token.")]
UserPrincipals = Annotated[
    Names, typer.Option("--user-principal", metavar="P", help="A user, for tokens in its name: User:alice.")
]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Pattern = Annotated[
    str,
    typer.Option(
        "--resource-pattern-type", metavar="P", help="literal or prefixed; to choose rules, also any or match."
    ),
]
AllowPrincipals = Annotated[
    Names, typer.Option("--allow-principal", metavar="P", help="Principal to allow, as User:alice.")
]
DenyPrincipals = Annotated[Names, typer.Option("--deny-principal", metavar="P", help="Principal to deny.")]
AllowHosts = Annotated[Names, typer.Option("--allow-host", metavar="H", help="Host to allow (default: all).")]
DenyHosts = Annotated[Names, typer.Option("--deny-host", metavar="H", help="Host to deny (default: all).")]
Operations = Annotated[
    Names, typer.Option("--operation", metavar="OP", help="read, write, describe, alter-configs, ... (default: all).")
]
Producer = Annotated[bool, typer.Option("--producer", help="The operations that a producer needs.")]
Consumer = Annotated[bool, typer.Option("--consumer", help="The operations that a consumer needs.")]
Idempotent = Annotated[
    bool, typer.Option("--idempotent", help="With --producer: also idempotent-write on the cluster.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resources(OptionGroup):
    """The resources named on a command line."""

    topic: TopicNames = None
    group: GroupNames = None
    transactional_id: TransactionalIds = None
    delegation_token: Tokens = None
    user_principal: UserPrincipals = None
    cluster: OfCluster = False
    pattern: Pattern = "literal"
    of_filter: ClassVar[bool] = False

    def all(self) -> list[tuple[ResourceType, str, PatternType]]:
        """Return the named resources. Raises UsageError for an unknown pattern type."""
        pattern_type = _pattern_type(self.pattern, for_filter=self.of_filter)
        named = (
            (ResourceType.TOPIC, self.topic),
            (ResourceType.GROUP, self.group),
            (ResourceType.TRANSACTIONAL_ID, self.transactional_id),
            (ResourceType.DELEGATION_TOKEN, self.delegation_token),
            (ResourceType.USER, self.user_principal),
        )
        found = [(type_, name, pattern_type) for type_, names in named for name in names or ()]
        if self.cluster:
            found.append((ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChosenResources(_Resources):
    of_filter: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _ListedResources(_ChosenResources):
    pattern: Pattern = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Access(OptionGroup):
    """Principals, hosts and operations to allow or deny."""

    allow_principal: AllowPrincipals = None
    deny_principal: DenyPrincipals = None
    allow_host: AllowHosts = None
    deny_host: DenyHosts = None
    operation: Operations = None
    producer: Producer = False
    consumer: Consumer = False
    idempotent: Idempotent = False

    def rules(self, resources: _Resources) -> list[Acl]:
        """Return the rules for resources. Raises UsageError for options that contradict each other."""
        who = self._who()
        return [
            Acl(*resource, principal=principal, host=host, operation=operation, permission=permission)
            for resource, operations in self._operations(resources)
            for principal, host, permission in who
            for operation in operations
        ]

    def _who(self) -> list[tuple[str, str, Permission]]:
        allowed, denied = self.allow_principal or (), self.deny_principal or ()
        for principal in (*allowed, *denied):
            if ":" not in principal:
                raise UsageError(f"{principal!r} is not a principal: write User:NAME")
        if not allowed and not denied:
            raise UsageError("no principal: give --allow-principal or --deny-principal")
        if (self.allow_host and not allowed) or (self.deny_host and not denied):
            raise UsageError(
                "a host needs a principal: --allow-host goes with --allow-principal, --deny-host with --deny-principal"
            )
        return [
            *((name, host, Permission.ALLOW) for name in allowed for host in self.allow_host or (_ANY,)),
            *((name, host, Permission.DENY) for name in denied for host in self.deny_host or (_ANY,)),
        ]

    def _operations(self, resources: _Resources) -> _ByResource:
        """Return the operations on each resource."""
        named = resources.all()
        if not self.producer and not self.consumer:
            operations = tuple(map(_operation, self.operation or ("all",)))
            if not named:
                raise UsageError("no resource: name a --topic, --group, --transactional-id or --cluster")
            return [(resource, operations) for resource in named]
        if self.operation:
            raise UsageError("--producer and --consumer choose the operations: leave --operation out")
        if not resources.topic or (self.consumer and not resources.group):
            raise UsageError("--producer needs --topic; --consumer needs --topic and --group")
        found = [(resource, self._needed(resource[0])) for resource in named]
        if self.idempotent:
            found.append(((ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL), (AclOperation.IDEMPOTENT_WRITE,)))
        return found

    def _needed(self, kind: ResourceType) -> tuple[AclOperation, ...]:
        produce = _OF_PRODUCERS.get(kind, ()) if self.producer else ()
        consume = _OF_CONSUMERS.get(kind, ()) if self.consumer else ()
        return tuple(dict.fromkeys((*produce, *consume)))


def list_(
    servers: ClusterOptions,
    resources: _ListedResources,
    principal: Annotated[Names, typer.Option("--principal", metavar="P", help="Only rules for these.")] = None,
    json_: Json = False,
) -> int:
    """List access rules: all, or those of some resources.

    With --resource-pattern-type match, list every rule that applies to the resources.

    \b
    Examples:
      stratalog acls list -b h:9092
      stratalog acls list -b h:9092 --topic orders --resource-pattern-type match
    """
    named = [AclFilter(*resource) for resource in resources.all()] or [AclFilter()]
    filters = [replace(each, principal=who) for each in named for who in principal or (None,)]
    with servers.open() as connection:
        found = [acl for each in filters for acl in _described(connection, each)]
    _show(list(dict.fromkeys(found)), json_=json_)
    return 0


def add(
    servers: ClusterOptions,
    resources: _Resources,
    access: _Access,
    dry_run: DryRun = False,
    json_: Json = False,
) -> int:
    """Add access rules. They take effect at once.

    \b
    Examples:
      stratalog acls add -b h:9092 --allow-principal User:alice --producer \\
        --topic orders
      stratalog acls add -b h:9092 --allow-principal User:bob --consumer \\
        --topic orders --group billing
      stratalog acls add -b h:9092 --deny-principal User:eve --topic pay \\
        --resource-pattern-type prefixed --operation read
    """
    acls = access.rules(resources)
    if not dry_run:
        with servers.open() as connection:
            answer = connection.any.call(ApiKey.CREATE_ACLS, _VERSIONS, creations=[_creation(acl) for acl in acls])
            for acl, result in zip(acls, answer.results, strict=True):
                check(result.error_code, result.error_message, f"Could not add {_sentence(acl)}")
    _show(acls, json_=json_)
    return 0


def remove(
    servers: ClusterOptions,
    resources: _ChosenResources,
    access: _Access,
    dry_run: DryRun = False,
    json_: Json = False,
) -> int:
    """Remove the described access rules; without a principal, all rules of the resources.

    \b
    Examples:
      stratalog acls remove -b h:9092 --allow-principal User:alice --producer \\
        --topic orders
      stratalog acls remove -b h:9092 --topic orders --dry-run
    """
    named = resources.all()
    if not named:
        raise UsageError(
            "nothing to remove: name a --topic, --group, --transactional-id, --delegation-token, --user-principal or "
            "--cluster"
        )
    if access.allow_principal or access.deny_principal:
        filters = [AclFilter(**{name: getattr(acl, name) for name in _FIELDS}) for acl in access.rules(resources)]
    else:
        filters = [AclFilter(*resource) for resource in named]
    with servers.open() as connection:
        if dry_run:
            gone = [acl for each in filters for acl in _described(connection, each)]
        else:
            answer = connection.any.call(ApiKey.DELETE_ACLS, _VERSIONS, filters=[_asked(each) for each in filters])
            for result in answer.filter_results:
                check(result.error_code, result.error_message, "Could not remove rules")
            gone = [acl_of_message(each, each) for result in answer.filter_results for each in result.matching_acls]
    _show(list(dict.fromkeys(gone)), json_=json_)
    return 0


_FIELDS = ("resource_type", "name", "pattern_type", "principal", "host", "operation", "permission")

_ByResource = list[tuple[tuple[ResourceType, str, PatternType], tuple[AclOperation, ...]]]

_OF_PRODUCERS = {
    ResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
_OF_CONSUMERS = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    ResourceType.GROUP: (AclOperation.READ,),
}


def _operation(text: str) -> AclOperation:
    wanted = text.replace("-", "").replace("_", "").upper()
    for operation in AclOperation:
        if operation > AclOperation.ANY and operation.name.replace("_", "") == wanted:
            return operation
    raise UsageError(
        f"--operation {text}: expected one of {', '.join(_shown(each) for each in AclOperation if each > 1)}"
    )


def _pattern_type(text: str, *, for_filter: bool = False) -> PatternType:
    known = {_shown(each): each for each in PatternType if each >= (1 if for_filter else PatternType.LITERAL)}
    if text.lower() not in known:
        raise UsageError(f"--resource-pattern-type {text}: expected one of {', '.join(known)}")
    return known[text.lower()]


def _shown(code: Any) -> str:
    return str(code.name).lower().replace("_", "-")


# --- on the wire ------------------------------------------------------------------------------------------------------


def _described(connection: Cluster, chosen: AclFilter) -> list[Acl]:
    answer = connection.any.call(ApiKey.DESCRIBE_ACLS, _VERSIONS, **_asked(chosen))
    check(answer.error_code, answer.error_message, "Could not list rules")
    return [acl_of_message(resource, acl) for resource in answer.resources for acl in resource.acls]


def _asked(chosen: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": int(chosen.resource_type),
        "resource_name_filter": chosen.name,
        "pattern_type_filter": int(chosen.pattern_type),
        "principal_filter": chosen.principal,
        "host_filter": chosen.host,
        "operation": int(chosen.operation),
        "permission_type": int(chosen.permission),
    }


def _creation(acl: Acl) -> dict[str, Any]:
    return {
        "resource_type": int(acl.resource_type),
        "resource_name": acl.name,
        "resource_pattern_type": int(acl.pattern_type),
        "principal": acl.principal,
        "host": acl.host,
        "operation": int(acl.operation),
        "permission_type": int(acl.permission),
    }


def _show(acls: list[Acl], *, json_: bool) -> None:
    if json_:
        shown = [
            {name: _shown(value) if name in _CODES else value for name, value in asdict(acl).items()} for acl in acls
        ]
        print_json({"acls": shown})
        return
    rows = [
        (_shown(acl.resource_type), acl.name, _shown(acl.pattern_type), acl.principal, acl.host,
         _shown(acl.operation), _shown(acl.permission))
        for acl in acls
    ]  # fmt: skip
    print_table(("resource", "name", "pattern", "principal", "host", "operation", "permission"), rows)


_CODES = ("resource_type", "pattern_type", "operation", "permission")


def _sentence(acl: Acl) -> str:
    return f"{_shown(acl.permission)} {acl.principal} {_shown(acl.operation)} on {_shown(acl.resource_type)} {acl.name}"
