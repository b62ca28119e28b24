"""Access rules (ACLs) and filters. Names and numbers are Kafka's (`org.apache.kafka.common.acl`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Final, Self

from stratalog.errors import InvalidRequestError, UnsupportedVersionError

#: In a rule: any name, any host, and (as `User:*`) any principal.
WILDCARD: Final = "*"
WILDCARD_PRINCIPAL: Final = "User:*"

#: The only name of a CLUSTER resource.
CLUSTER_NAME: Final = "kafka-cluster"


class _Code(IntEnum):
    """A number of the protocol. One without a meaning becomes UNKNOWN, 0."""

    @classmethod
    def _missing_(cls, _value: object) -> Self:
        return cls(0)


class ResourceType(_Code):
    """A kind of protected resource."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @property
    def title(self) -> str:
        """Return the name as Kafka writes it in messages: `TransactionalId`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class PatternType(_Code):
    """How the name in a rule matches. ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Code):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(_Code):
    """Whether a rule allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True)
class Acl:
    """One access rule: `principal` (as `User:alice`) from `host` may, or may not, do `operation` on the resource."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: Permission

    def __str__(self) -> str:
        """Return the rule as Kafka's audit log writes it."""
        return (
            f"StandardAcl[resourceType={self.resource_type.name}, resourceName={self.name}, "
            f"patternType={self.pattern_type.name}, principal={self.principal}, host={self.host}, "
            f"operation={self.operation.name}, permissionType={self.permission.name}]"
        )


def acl_of(
    *, resource_type: int, name: str, pattern_type: int, principal: str, host: str, operation: int, permission: int
) -> Acl:
    """Return a rule from the numbers of the protocol; those without a meaning become UNKNOWN."""
    return Acl(
        resource_type=ResourceType(resource_type),
        name=name,
        pattern_type=PatternType(pattern_type),
        principal=principal,
        host=host,
        operation=AclOperation(operation),
        permission=Permission(permission),
    )


def acl_of_message(pattern: Any, entry: Any) -> Acl:
    """Return a rule from Kafka's messages, where the pattern of resources may be apart from the entry for it."""
    return acl_of(
        resource_type=pattern.resource_type,
        name=pattern.resource_name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission=entry.permission_type,
    )


def names_unknown(asked: Any) -> bool:
    """Return whether a filter in a request names UNKNOWN, with which Kafka does not even parse the request."""
    return 0 in (asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type)


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter of rules. None and ANY match all; MATCH matches every rule that applies to `name`."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    @classmethod
    def of(cls, asked: Any) -> AclFilter:
        """Return the filter of a DescribeAcls request, or one of a DeleteAcls request."""
        return cls(
            resource_type=ResourceType(asked.resource_type_filter),
            name=asked.resource_name_filter,
            pattern_type=PatternType(asked.pattern_type_filter),
            principal=asked.principal_filter,
            host=asked.host_filter,
            operation=AclOperation(asked.operation),
            permission=Permission(asked.permission_type),
        )

    @property
    def is_unknown_pattern(self) -> bool:
        return not (self.resource_type and self.pattern_type)

    @property
    def is_unknown_entry(self) -> bool:
        return not (self.operation and self.permission)

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.name == acl.name
        if acl.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name in (self.name, WILDCARD)


def check_new_acl(acl: Acl, *, ranges: bool) -> None:
    """Check a rule to be added; `ranges` says whether its host may be a range of addresses.

    Raises InvalidRequestError or UnsupportedVersionError with Kafka's messages.
    """
    if acl.resource_type is ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise InvalidRequestError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.name:
        raise InvalidRequestError("Invalid empty resource name")
    if acl.resource_type <= ResourceType.ANY:
        raise InvalidRequestError(f"Invalid resourceType {acl.resource_type.name}")
    if acl.pattern_type < PatternType.LITERAL:
        raise InvalidRequestError(f"Invalid patternType {acl.pattern_type.name}")
    if acl.operation <= AclOperation.ANY:
        raise InvalidRequestError(f"Invalid operation {acl.operation.name}")
    if acl.permission < Permission.DENY:
        raise InvalidRequestError(f"Invalid permissionType {acl.permission.name}")
    if ":" not in acl.principal:
        raise InvalidRequestError(
            f"Could not parse principal from `{acl.principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    if not acl.host:
        raise InvalidRequestError("Host pattern cannot be null or empty")
    if "/" in acl.host:
        if not ranges:
            raise UnsupportedVersionError("a rule for a range of addresses needs metadata.version 4.4-IV1")
        try:
            network_of(acl.host)
        except ValueError as error:
            raise InvalidRequestError(f"Invalid host pattern {acl.host}: {error}") from error


def network_of(host: str) -> IPv4Network | IPv6Network:
    """Return the address range in the host of a rule, such as `10.1.0.0/16`; ValueError if it is invalid."""
    address, _, length = host.partition("/")
    if not (length.isascii() and length.isdecimal()):
        raise ValueError(f"{host!r} is no range of addresses; write 10.1.0.0/16 or fd00::/8")
    kind = IPv6Network if ":" in address else IPv4Network
    return kind((address, int(length)), strict=False)


@lru_cache(maxsize=4096)
def is_in_range(address: str, host: str) -> bool:
    """Return whether an address is in the range in the host of a rule; False if that is no range."""
    if "/" not in host:
        return False
    try:
        return ip_address(address) in network_of(host)
    except ValueError:
        return False


@lru_cache(maxsize=4096)
def host_in_rules(address: str) -> str:
    """Return a socket's address in Java's form, which rules and the audit log use."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        mapped: IPv4Address | None = found.ipv4_mapped
        return str(mapped) if mapped else ":".join(f"{int(group, 16):x}" for group in found.exploded.split(":"))
    return str(found)
