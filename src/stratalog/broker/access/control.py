"""Check a client's access and write the audit log.

The log is that of Kafka's authorizer, `kafka.authorizer.logger`: denied access at INFO, allowed access at DEBUG. Checks
that grant no access (authorized operations, filters of lists) are at TRACE, here level 5.
"""

from __future__ import annotations

import json
import logging
from asyncio import Lock
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from stratalog.broker.access.acls import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    PatternType,
    ResourceType,
    host_in_rules,
)
from stratalog.broker.access.authorizer import AclVerdict, Authorizer
from stratalog.config import AUTHORIZER, BrokerConfig, invalid

if TYPE_CHECKING:
    from stratalog.broker.security import Peer
    from stratalog.wire import ApiKey

audit_logger = logging.getLogger("kafka.authorizer.logger")

_TRACE: Final = 5

#: Operations of each resource type, as in Kafka's `AclEntry.supportedOperations`.
_OPERATIONS: Final = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}


class _Asked(NamedTuple):
    peer: Peer
    host: str
    key: ApiKey
    operation: AclOperation
    resource_type: ResourceType
    name: str
    times: int


def super_users(config: BrokerConfig) -> list[str]:
    """Return the super users. InvalidConfigError for one without its type."""
    names = [name.strip() for name in config["super.users"].split(";") if name.strip()]
    for name in names:
        if ":" not in name:
            raise invalid("super.users", config["super.users"], "a list as User:admin;User:other")
    return names


def access_control(config: BrokerConfig, acls: Callable[[], Iterable[Acl]]) -> AccessControl | None:
    """Return the configured authorizer with the stored rules; None when every client may do everything."""
    names = super_users(config)
    if not config[AUTHORIZER]:
        return None
    authorizer = Authorizer(acls(), super_users=names, allow_if_no_acl=config["allow.everyone.if.no.acl.found"])
    return AccessControl(authorizer, json_log=config["stratalog.authorizer.log.format"] == "json")


class AccessControl:
    """The authorizer as the APIs use it. Belongs to the loop's thread."""

    def __init__(self, authorizer: Authorizer, *, json_log: bool = False) -> None:
        self.authorizer = authorizer
        #: Held from the change of the stored rules until the authorizer has applied it.
        self.changing = Lock()
        self._json_log = json_log

    @property
    def logs_allowed(self) -> bool:
        """Whether allowed access is logged."""
        return audit_logger.isEnabledFor(logging.DEBUG)

    def allows(
        self,
        peer: Peer,
        key: ApiKey,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str = CLUSTER_NAME,
        *,
        log_allowed: bool = True,
        log_denied: bool = True,
    ) -> bool:
        """Return whether a client may do this."""
        principal, host = str(peer.principal), host_in_rules(peer.client_host)
        verdict = self.authorizer.decide(principal, host, operation, resource_type, name)
        if verdict.allowed:
            level = logging.DEBUG if log_allowed else _TRACE
        else:
            level = logging.INFO if log_denied else _TRACE
        if audit_logger.isEnabledFor(level):
            asked = _Asked(
                peer=peer,
                host=host,
                key=key,
                operation=operation,
                resource_type=resource_type,
                name=name,
                times=1,
            )
            self._log(level, asked, verdict)
        return verdict.allowed

    def allows_any(self, peer: Peer, key: ApiKey, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Return whether a client may do this to some resource of the type."""
        host = host_in_rules(peer.client_host)
        verdict = self.authorizer.decide_any(str(peer.principal), host, operation, resource_type)
        if audit_logger.isEnabledFor(_TRACE):
            asked = _Asked(
                peer=peer,
                host=host,
                key=key,
                operation=operation,
                resource_type=resource_type,
                name="hardcode",
                times=0,
            )
            self._log(_TRACE, asked, verdict)
        return verdict.allowed

    def operations(self, peer: Peer, key: ApiKey, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the operations that a client may do on a resource, one bit each."""
        return sum(
            1 << operation
            for operation in _OPERATIONS[resource_type]
            if self.allows(peer, key, operation, resource_type, name, log_allowed=False, log_denied=False)
        )

    def allowed_names(
        self,
        peer: Peer,
        key: ApiKey,
        operation: AclOperation,
        resource_type: ResourceType,
        names: Iterable[str],
        *,
        log_denied: bool = True,
    ) -> set[str]:
        """Return the resources among `names` on which a client may do this."""
        return {
            name for name in set(names) if self.allows(peer, key, operation, resource_type, name, log_denied=log_denied)
        }

    def _log(
        self,
        level: int,
        asked: _Asked,
        verdict: AclVerdict,
    ) -> None:
        peer, host, key, operation, resource_type, name, count = asked
        if self._json_log:
            line = json.dumps(
                {
                    "principal": str(peer.principal),
                    "allowed": verdict.allowed,
                    "operation": operation.name,
                    "host": host,
                    "listener": peer.listener.name,
                    "resourceType": resource_type.name,
                    "patternType": PatternType.LITERAL.name,
                    "resourceName": name,
                    "request": key.message,
                    "resourceRefCount": count,
                    "rule": verdict.rule,
                }
            )
        else:
            line = (
                f"Principal = {_on_one_line(str(peer.principal))} is {'Allowed' if verdict.allowed else 'Denied'} "
                f"operation = {operation.name} from host = {host} "
                f"on resource = {resource_type.title}:LITERAL:{_on_one_line(name)} for request = {key.message} "
                f"with resourceRefCount = {count} based on rule {verdict.rule}"
            )
        audit_logger.log(level, "%s", line)


def _on_one_line(name: str) -> str:
    """Escape a name that could start a second line in the log."""
    return name if name.isprintable() else name.encode("unicode_escape").decode()
