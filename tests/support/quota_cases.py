"""Requests for quotas, one after another, and what a broker answers to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from stratalog.wire.api_keys import ApiKey
from tests.support.wire import Wire

EXACT, DEFAULT, SPECIFIED = range(3)
Parts = Mapping[str, str | None]


def op(key: str, value: float | None) -> dict[str, Any]:
    """A quota that is set, or (None) removed."""
    return {"key": key, "value": 0.0 if value is None else float(value), "remove": value is None}


def entry(entity: Parts, *ops: dict[str, Any]) -> dict[str, Any]:
    parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    return {"entity": parts, "ops": list(ops)}


def alter(wire: Wire, *entries: dict[str, Any], version: int = 1, validate_only: bool = False) -> list[Any]:
    """Code, message and entity of each answer, in a fixed order."""
    answer = wire.call(ApiKey.ALTER_CLIENT_QUOTAS, version, entries=list(entries), validate_only=validate_only)
    return sorted([int(each.error_code), each.error_message, _shown(each.entity)] for each in answer.entries)


def set_quota(wire: Wire, entity: Parts, **values: float | None) -> None:
    ((code, message, _),) = alter(wire, entry(entity, *(op(key, value) for key, value in values.items())))
    assert code == 0, message


def describe(wire: Wire, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1) -> Any:
    """The error, or the entities with their quotas in a fixed order."""
    asked = [{"entity_type": kind, "match_type": how, "match": match} for kind, how, match in components]
    answer = wire.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, components=asked, strict=strict)
    if answer.error_code:
        return [int(answer.error_code), answer.error_message, answer.entries]
    return sorted(
        [_shown(each.entity), sorted([value.key, value.value] for value in each.values)] for each in answer.entries
    )


def _shown(entity: Any) -> str:
    return ", ".join(sorted(f"{part.entity_type}={part.entity_name!r}" for part in entity))


ODD_NAMES = ("a b", "ünï", "per%cent", "a/b", "<default>", "*", 'quo"te', "new\nline", "日本", "x" * 300)
KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
    "no_such_key",
    "SCRAM-SHA-256",
)
VALUES = (1, 0, -1, 0.5, 1.0000001, 1.1, 1e-9, 2**31 - 1, 2**31, 2**53, 9.3e18, 1e300, math.nan, math.inf, -math.inf)
ENTITIES: tuple[Parts, ...] = (
    {"user": "u"},
    {"client-id": "c"},
    {"user": "u", "client-id": "c"},
    {"user": None},
    {"client-id": None},
    {"user": None, "client-id": None},
    {"user": "u", "client-id": None},
    {"user": None, "client-id": "c"},
    {"ip": "10.0.0.1"},
    {"ip": None},
    {"ip": "::1"},
    {"ip": "no-such-host.invalid"},
    {"ip": "10.0.0.1", "user": "u"},
    {"ip": "10.0.0.1", "client-id": "c"},
    {"user": ""},
    {"ip": ""},
    {},
    {"group": "g"},
    {"user": "u", "group": "g"},
)
FILTERS: tuple[tuple[tuple[str, int, str | None], ...], ...] = (
    (),
    (("user", EXACT, "u"),),
    (("user", DEFAULT, None),),
    (("user", SPECIFIED, None),),
    (("client-id", SPECIFIED, None),),
    (("user", EXACT, "u"), ("client-id", EXACT, "c")),
    (("user", EXACT, "u"), ("client-id", SPECIFIED, None)),
    (("user", SPECIFIED, None), ("client-id", SPECIFIED, None)),
    (("user", DEFAULT, None), ("client-id", DEFAULT, None)),
    (("ip", SPECIFIED, None),),
    (("ip", EXACT, "10.0.0.1"),),
    (("ip", EXACT, "1.1.1.1"),),
    (("ip", EXACT, "10.0.0.1"), ("user", SPECIFIED, None)),
    (("user", EXACT, None),),
    (("user", DEFAULT, "u"),),
    (("user", SPECIFIED, "u"),),
    (("user", 7, None),),
    (("", EXACT, "u"),),
    (("group", EXACT, "u"),),
    (("user", EXACT, "u"), ("user", EXACT, "v")),
)


def answers(bootstrap_servers: str, settle: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """What a fresh broker answers, by what it was asked. `settle` waits until changes are in force."""
    said: dict[str, Any] = {}
    with Wire(bootstrap_servers) as wire:

        def ask(title: str, *entries: dict[str, Any], **more: Any) -> None:
            said[title] = alter(wire, *entries, **more)

        for version in (0, 1):
            for key in KEYS:
                for value in VALUES if version else VALUES[:2]:
                    for kind, name in (("user", "u"), ("client-id", "c"), ("ip", "10.0.0.1")):
                        title = f"v{version} validate {kind} {key} {value}"
                        ask(title, entry({kind: name}, op(key, value)), version=version, validate_only=True)
            said[f"v{version} nothing was set"] = describe(wire, version=version)
        for entity in ENTITIES:
            key = "connection_creation_rate" if "ip" in entity else "consumer_byte_rate"
            ask(f"set {entity}", entry(entity, op(key, 5)))
            if not {"user", "client-id"} - entity.keys():
                ask(f"set more {entity}", entry(entity, op("request_percentage", 2.5), op("producer_byte_rate", 7)))
        for name in ODD_NAMES:
            ask(f"set {name!r}", entry({"user": name, "client-id": name}, op("request_percentage", 12.25)))
        settle()
        for strict in (False, True):
            for chosen in FILTERS:
                said[f"describe {chosen} strict={strict}"] = describe(wire, *chosen, strict=strict)
        user = {"user": "twice"}
        ask("the same entity twice", entry(user, op("request_percentage", 1)), entry(user, op("request_percentage", 2)))
        settle()
        said["what the first of them set"] = describe(wire, ("user", EXACT, "twice"))
        ask("the same key twice", entry(user, op("request_percentage", 3), op("request_percentage", 4)))
        ask("one bad of two keys", entry(user, op("request_percentage", 5), op("no_such", 4)))
        ask("one bad of two entities", entry(user, op("request_percentage", 6)), entry({}, op("request_percentage", 7)))
        settle()
        said["what is set after them"] = describe(wire, ("user", EXACT, "twice"))
        ask("removed", entry(user, op("request_percentage", None)))
        ask("removed again", entry(user, op("request_percentage", None)))
        ask("removed what cannot be", entry(user, op("no_such", None)))
        ask("nothing to do", entry(user))
        ask("no entry")
        settle()
        said["what is left"] = describe(wire, ("user", EXACT, "twice"))
    return said
