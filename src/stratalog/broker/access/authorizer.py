"""Decide by access rules, as Kafka's `StandardAuthorizer`.

Super users may do everything. Otherwise a matching DENY takes precedence over any ALLOW, however specific either is. A
rule applies to a resource when its name equals the resource's (LITERAL), is a prefix of it (PREFIXED), or is `*`
(LITERAL). Without any rule for the resource, the default applies; with rules of which none matches the principal, host
and operation, access is denied. ALLOW of READ, WRITE, DELETE or ALTER implies DESCRIBE; ALLOW of ALTER_CONFIGS implies
DESCRIBE_CONFIGS. DENY implies nothing.

As in Kafka, rules for `*` do not apply to resources whose own names begin with `*`; no topic can have such a name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from threading import RLock

from stratalog.broker.access.acls import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
    is_in_range,
)

#: Operations whose ALLOW grants an operation, if not only that operation.
_ALLOWED_BY = {
    AclOperation.DESCRIBE: frozenset(
        {
            AclOperation.ALL,
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
        }
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset(
        {AclOperation.ALL, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS}
    ),
}

#: Size of the cache of verdicts; when it is full, it is cleared.
_REMEMBERED_MAX = 20_000
#: Longer names are not cached: clients choose them, and no topic has one.
_REMEMBERED_NAME_MAX = 249


@dataclass(frozen=True, slots=True)
class AclVerdict:
    """A decision and its reason: SuperUser, DefaultAllow, DefaultDeny, or the text of the matching rule."""

    allowed: bool
    rule: str


_SUPER_USER = AclVerdict(True, "SuperUser")
_DEFAULT_ALLOW = AclVerdict(True, "DefaultAllow")
_DEFAULT_DENY = AclVerdict(False, "DefaultDeny")


@dataclass(slots=True)
class _Rules:
    """The rules for one resource type, by name."""

    literal: dict[str, list[Acl]] = field(default_factory=lambda: defaultdict(list))
    prefixed: dict[str, list[Acl]] = field(default_factory=lambda: defaultdict(list))
    #: Number of prefixes by length.
    lengths: Counter[int] = field(default_factory=Counter)

    def named(self, acl: Acl) -> dict[str, list[Acl]]:
        return self.literal if acl.pattern_type is PatternType.LITERAL else self.prefixed

    def about(self, name: str) -> Iterator[Acl]:
        """Yield the rules that apply to one resource."""
        yield from self.literal.get(name, ())
        for length in self.lengths:
            if length <= len(name):
                yield from self.prefixed.get(name[:length], ())
        if not name.startswith(WILDCARD):
            yield from self.literal.get(WILDCARD, ())


class Authorizer:
    """Decides by its rules. Verdicts are cached until a rule changes.

    Decisions are thread-safe: those on a large request are made beside the loop. Changes belong to the loop's thread.
    """

    def __init__(
        self, acls: Iterable[Acl] = (), *, super_users: Iterable[str] = (), allow_if_no_acl: bool = False
    ) -> None:
        self._super_users = frozenset(super_users)
        self._default = _DEFAULT_ALLOW if allow_if_no_acl else _DEFAULT_DENY
        self._acls: dict[Acl, None] = {}
        self._rules: dict[ResourceType, _Rules] = defaultdict(_Rules)
        #: Held while rules change, and while a verdict is found and remembered: none outlives the rules it came from.
        self._lock = RLock()
        self._remembered: dict[tuple[str, str, AclOperation, ResourceType, str], AclVerdict] = {}
        #: Called after every change: earlier verdicts may be outdated.
        self.on_change: Callable[[], None] = lambda: None
        self.add(acls)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._acls

    def __len__(self) -> int:
        return len(self._acls)

    def matching(self, chosen: AclFilter) -> list[Acl]:
        """Return the matching rules, oldest first."""
        return [acl for acl in self._acls if chosen.matches(acl)]

    def add(self, acls: Iterable[Acl]) -> None:
        """Add rules, except those that exist."""
        with self._lock:
            for acl in acls:
                if acl not in self._acls:
                    self._acls[acl] = None
                    rules = self._rules[acl.resource_type]
                    rules.named(acl)[acl.name].append(acl)
                    if acl.pattern_type is PatternType.PREFIXED:
                        rules.lengths[len(acl.name)] += 1
            self._remembered.clear()
        self.on_change()

    def remove(self, acls: Iterable[Acl]) -> None:
        """Remove rules; ones that do not exist are ignored."""
        with self._lock:
            for acl in acls:
                if acl in self._acls:
                    del self._acls[acl]
                    rules = self._rules[acl.resource_type]
                    named = rules.named(acl)
                    named[acl.name].remove(acl)
                    if not named[acl.name]:
                        del named[acl.name]
                    if acl.pattern_type is PatternType.PREFIXED:
                        rules.lengths[len(acl.name)] -= 1
                        if not rules.lengths[len(acl.name)]:
                            del rules.lengths[len(acl.name)]
            self._remembered.clear()
        self.on_change()

    @property
    def rules(self) -> list[Acl]:
        """All rules, oldest first."""
        return list(self._acls)

    def change(self, gone: Iterable[Acl], new: Iterable[Acl]) -> None:
        """Replace rules, with no decision in between."""
        with self._lock:
            self.remove(gone)
            self.add(new)

    def decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> AclVerdict:
        """Return whether `principal` (as `User:alice`) may do this from `host` (an address), and why."""
        if principal in self._super_users:
            return _SUPER_USER
        asked = (principal, host, operation, resource_type, name)
        found = self._remembered.get(asked)
        if found is None:
            with self._lock:
                found = self._decide(*asked)
                if len(name) <= _REMEMBERED_NAME_MAX:
                    if len(self._remembered) >= _REMEMBERED_MAX:
                        self._remembered.clear()
                    self._remembered[asked] = found
        return found

    def _decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> AclVerdict:
        allowed_by = _ALLOWED_BY.get(operation, (operation, AclOperation.ALL))
        forbidden_by = (operation, AclOperation.ALL)
        allow: Acl | None = None
        none_found = True
        for acl in self._rules[resource_type].about(name):
            none_found = False
            if not _concerns(acl, principal, host):
                continue
            if acl.permission is Permission.DENY:
                if acl.operation in forbidden_by:
                    return AclVerdict(False, f"MatchingAcl(acl={acl})")
            elif acl.operation in allowed_by:
                allow = acl
        if allow is not None:
            return AclVerdict(True, f"MatchingAcl(acl={allow})")
        return self._default if none_found else _DEFAULT_DENY

    def decide_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> AclVerdict:
        """Return whether `principal` may do this to some resource of this type (KIP-679).

        Implied operations do not count here, as in Kafka.
        """
        on_some_name = self.decide(principal, host, operation, resource_type, "hardcode")
        if on_some_name.allowed:
            return on_some_name
        with self._lock:
            acls = list(self._acls)
        concerned = [
            acl
            for acl in acls
            if acl.resource_type is resource_type
            and _concerns(acl, principal, host)
            and acl.operation in (operation, AclOperation.ALL)
        ]
        literal_denied, prefixes_denied = (
            {acl.name for acl in concerned if acl.permission is Permission.DENY and acl.pattern_type is pattern_type}
            for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
        )
        if WILDCARD in literal_denied:
            return _DEFAULT_DENY
        for acl in concerned:
            if acl.permission is Permission.ALLOW and not _is_outdone(acl, literal_denied, prefixes_denied):
                return AclVerdict(True, f"MatchingAcl(acl={acl})")
        return _DEFAULT_DENY


def _concerns(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, WILDCARD_PRINCIPAL) and (
        acl.host in (host, WILDCARD) or is_in_range(host, acl.host)
    )


def _is_outdone(allow: Acl, literal_denied: set[str], prefixes_denied: set[str]) -> bool:
    """Return whether other rules deny everything that a rule allows."""
    is_literal = allow.pattern_type is PatternType.LITERAL
    if is_literal and allow.name == WILDCARD:
        return False
    if is_literal and allow.name in literal_denied:
        return True
    return any(allow.name[:length] in prefixes_denied for length in range(1, len(allow.name) + 1))
