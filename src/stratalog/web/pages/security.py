"""Users, access rules and quotas, through the broker's own APIs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from stratalog.broker.access import AclOperation, PatternType, Permission, ResourceType
from stratalog.broker.security import ITERATIONS_MIN, SCRAM_HASHES
from stratalog.broker.server import ApiKey
from stratalog.errors import KafkaError
from stratalog.util import random_bytes
from stratalog.web.declarations import Console, NotThatValueError
from stratalog.web.fields import choice, words
from stratalog.web.viewer import ConsoleViewer, check_code

_ANY: Final = 1
_MECHANISMS: Final = dict(enumerate(SCRAM_HASHES, start=1))
_TYPES: Final = tuple(each.name for each in ResourceType if each > _ANY)
_PATTERNS: Final = ("LITERAL", "PREFIXED")
_OPERATIONS: Final = tuple(each.name for each in AclOperation if each > _ANY)
_PERMISSIONS: Final = ("ALLOW", "DENY")

FIELDS = (words("q", longest=500, help="Part of a user's, principal's or resource's name."),)
USER_FIELDS = (
    words("user", longest=500, help="The name."),
    words("password", longest=1000, help="The new password."),
    choice("mechanism", tuple(SCRAM_HASHES)),
    choice("act", ("set", "remove")),
)
ACL_FIELDS = (
    words("principal", longest=500, help="Such as User:alice; User:* is every user.", pattern=r"[^:\s]+:.+"),
    words("host", "*", 100, help="An address, or * for any."),
    choice("operation", _OPERATIONS, "READ"),
    choice("type", _TYPES, "TOPIC"),
    words("name", longest=500, help="The resource's name, its beginning, or *."),
    choice("pattern", _PATTERNS),
    choice("permission", _PERMISSIONS),
    choice("act", ("add", "remove")),
)
_QUOTAS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
QUOTA_FIELDS = (
    words("quota_user", longest=500, help="A user; <default> for all others."),
    words("quota_client", longest=500, help="A client id; <default> for all others."),
    choice("quota_key", _QUOTAS),
    words("quota_value", longest=30, help="The limit; empty: none.", pattern=r"\d{1,15}(\.\d{1,6})?"),
)


def view(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    """Return users, rules and quotas, or an error for each without access."""
    query = values["q"].lower()
    users, users_error = _or_error(lambda: _users(viewer, query))
    acls, acls_error = _or_error(lambda: _acls(viewer, query))
    return {
        "hasAuthorizer": viewer.broker.access is not None,
        "principal": str(viewer.principal),
        "users": users,
        "usersError": users_error,
        "acls": acls,
        "aclsError": acls_error,
        **_quotas(viewer, query),
        "choices": {
            "mechanisms": list(SCRAM_HASHES),
            "operations": _OPERATIONS,
            "types": _TYPES,
            "patterns": _PATTERNS,
            "permissions": _PERMISSIONS,
            "quotas": _QUOTAS,
        },
    }


def _or_error(look: Callable[[], list[dict[str, Any]]]) -> tuple[list[dict[str, Any]], str | None]:
    try:
        return look(), None
    except KafkaError as error:
        return [], str(error)


def _users(viewer: ConsoleViewer, query: str) -> list[dict[str, Any]]:
    answer = viewer.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
    check_code(int(answer.error_code), answer.error_message)
    return [
        {
            "user": each.user,
            "mechanisms": [
                {"name": _MECHANISMS.get(info.mechanism, "unknown"), "iterations": info.iterations}
                for info in each.credential_infos
            ],
        }
        for each in answer.results
        if not int(each.error_code) and query in each.user.lower()
    ]


def _acls(viewer: ConsoleViewer, query: str) -> list[dict[str, Any]]:
    if viewer.broker.access is None:
        return []
    answer = viewer.call(
        ApiKey.DESCRIBE_ACLS,
        3,
        resource_type_filter=_ANY,
        pattern_type_filter=_ANY,
        operation=_ANY,
        permission_type=_ANY,
    )
    check_code(int(answer.error_code), answer.error_message)
    return [
        {
            "principal": acl.principal,
            "host": acl.host,
            "operation": AclOperation(acl.operation).name,
            "permission": Permission(acl.permission_type).name,
            "type": ResourceType(resource.resource_type).name,
            "name": resource.resource_name,
            "pattern": PatternType(resource.pattern_type).name,
        }
        for resource in answer.resources
        for acl in resource.acls
        if query in f"{acl.principal} {resource.resource_name}".lower()
    ]


def _quotas(viewer: ConsoleViewer, query: str) -> dict[str, Any]:
    """Return the quotas of clients, if the broker supports them."""
    if not viewer.serves(ApiKey.DESCRIBE_CLIENT_QUOTAS):
        return {"hasQuotas": False, "quotas": [], "quotasError": None}

    def look() -> list[dict[str, Any]]:
        answer = viewer.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=[], strict=False)
        check_code(int(answer.error_code), answer.error_message)
        found = [
            {
                "entity": [{"type": part.entity_type, "name": part.entity_name} for part in entry.entity],
                "values": [{"key": value.key, "value": value.value} for value in entry.values],
            }
            for entry in answer.entries or ()
        ]
        return [each for each in found if query in str(each["entity"]).lower()]

    quotas, error = _or_error(look)
    return {"hasQuotas": True, "quotas": quotas, "quotasError": error}


# --- changes ----------------------------------------------------------------------------------------------------------


def change_user(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> tuple[str, str]:
    """Set or remove a user's SCRAM credential."""
    user, mechanism = values["user"], values["mechanism"]
    number = next(number for number, name in _MECHANISMS.items() if name == mechanism)
    if values["act"] == "set" and not values["password"]:
        raise NotThatValueError("password", "a password is needed")
    if not user:
        raise NotThatValueError("user", "a name is needed")
    deletions, upsertions = [], []
    if values["act"] == "remove":
        deletions = [{"name": user, "mechanism": number}]
    else:
        salt = random_bytes(24)
        salted = hashlib.pbkdf2_hmac(SCRAM_HASHES[mechanism], values["password"].encode(), salt, ITERATIONS_MIN)
        credential = {"iterations": ITERATIONS_MIN, "salt": salt, "salted_password": salted}
        upsertions = [{"name": user, "mechanism": number, **credential}]
    answer = viewer.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=deletions, upsertions=upsertions).results[0]
    _refuse("user", answer)
    done = f"{mechanism} of {user} is {'set' if values['act'] == 'set' else 'removed'}"
    console.events.note("info", "console", f"{viewer.principal}: {done}")
    return "/security#users", done


def change_acl(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> tuple[str, str]:
    """Add or remove an access rule."""
    if not values["name"]:
        raise NotThatValueError("name", "a name is needed; * is all")
    if not values["principal"]:
        raise NotThatValueError("principal", "a principal is needed, such as User:alice")
    pattern = int(PatternType[values["pattern"]])
    resource_type, operation = int(ResourceType[values["type"]]), int(AclOperation[values["operation"]])
    permission = int(Permission[values["permission"]])
    who = {"principal": values["principal"], "host": values["host"]}
    if values["act"] == "add":
        answer = viewer.call(
            ApiKey.CREATE_ACLS,
            3,
            creations=[
                {
                    "resource_type": resource_type,
                    "resource_name": values["name"],
                    "resource_pattern_type": pattern,
                    "operation": operation,
                    "permission_type": permission,
                    **who,
                }
            ],
        ).results[0]
    else:
        answer = viewer.call(
            ApiKey.DELETE_ACLS,
            3,
            filters=[
                {
                    "resource_type_filter": resource_type,
                    "resource_name_filter": values["name"],
                    "pattern_type_filter": pattern,
                    "principal_filter": values["principal"],
                    "host_filter": values["host"],
                    "operation": operation,
                    "permission_type": permission,
                }
            ],
        ).filter_results[0]
    _refuse("principal", answer)
    rule = (
        f"{values['permission']} {values['operation']} on {values['type']} {values['name']} "
        f"({values['pattern']}) to {values['principal']} from {values['host']}"
    )
    done = f"{'added' if values['act'] == 'add' else 'removed'}: {rule}"
    console.events.note("info", "console", f"{viewer.principal} {done}")
    return "/security#acls", done


def change_quota(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> tuple[str, str]:
    """Set or remove one limit of a user, a client id, or both."""
    named = [(kind, values[name]) for kind, name in (("user", "quota_user"), ("client-id", "quota_client"))]
    entity = [(kind, None if name == "<default>" else name) for kind, name in named if name]
    if not entity:
        raise NotThatValueError("quota_user", "a user or a client id is needed")
    key, value = values["quota_key"], values["quota_value"]
    answer = viewer.call(
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        entries=[
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                "ops": [{"key": key, "value": float(value or 0), "remove": not value}],
            }
        ],
        validate_only=False,
    ).entries[0]
    _refuse("quota_value", answer)
    of = ", ".join(f"{kind} {name or '<default>'}" for kind, name in entity)
    done = f"{key} of {of} is {value or 'no longer limited'}"
    console.events.note("info", "console", f"{viewer.principal}: {done}")
    return "/security#quotas", done


def _refuse(field: str, answer: Any) -> None:
    try:
        check_code(int(answer.error_code), answer.error_message)
    except KafkaError as error:
        raise NotThatValueError(field, str(error)) from error
