"""Entities that quotas are set for, and valid values. Pure.

An entity is a user, a client id, both together, or an address; the name None means the default of its type.
Source: `ClientQuotaControlManager`, `QuotaConfigs` and `ClientQuotasImage` of Kafka 4.4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stratalog.errors import InvalidRequestError, UnsupportedVersionError

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

#: Types and names, sorted by type; a name of None is the default of the type.
QuotaEntity = tuple[tuple[str, str | None], ...]

_LONG_MAX: Final = float(2**63 - 1)
_INT_MAX: Final = float(2**31 - 1)
_ROUNDING: Final = 1e-6

#: The quotas of users and client ids: for each, the largest value of its type; None allows fractions.
CLIENT_QUOTAS: Final[Mapping[str, tuple[float, str] | None]] = {
    PRODUCER_BYTE_RATE: (_LONG_MAX, "a LONG"),
    CONSUMER_BYTE_RATE: (_LONG_MAX, "a LONG"),
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
ADDRESS_QUOTAS: Final[Mapping[str, tuple[float, str] | None]] = {CONNECTION_CREATION_RATE: (_INT_MAX, "an INT")}


def entity_of(parts: Sequence[tuple[str, str | None]], is_host: Callable[[str], bool]) -> QuotaEntity:
    """Return the entity in a request. InvalidRequestError for one that cannot have quotas.

    `is_host` returns whether an address can be resolved; it may block.
    """
    entity = dict(parts)
    if not entity:
        raise InvalidRequestError("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequestError(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidRequestError(f"Empty {kind} not supported")
    if IP in entity:
        if len(entity) > 1:
            raise InvalidRequestError(
                "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
            )
        address = entity[IP]
        if address is not None and not is_host(address):
            raise InvalidRequestError(f"{address} is not a valid IP or resolvable host.")
    return tuple(sorted(entity.items()))


def keys_of(entity: QuotaEntity) -> Mapping[str, tuple[float, str] | None]:
    """Return the quotas that an entity can have."""
    return ADDRESS_QUOTAS if entity[0][0] == IP else CLIENT_QUOTAS


def check_quota(entity: QuotaEntity, key: str, value: float) -> None:
    """Raise InvalidRequestError for a quota that the entity cannot have, or an invalid value."""
    keys = keys_of(entity)
    if key not in keys:
        raise InvalidRequestError(f"Invalid configuration key {key}")
    if not math.isfinite(value):
        raise InvalidRequestError(f"Quota {key} must be a finite number")
    if value <= 0:
        raise InvalidRequestError(f"Quota {key} must be greater than 0")
    whole = keys[key]
    if whole is None:
        return
    largest, what = whole
    if value > largest:
        raise InvalidRequestError(f"Proposed value for {key} is too large for {what}.")
    if math.fmod(value, 1) > _ROUNDING:
        raise InvalidRequestError(f"{key} cannot be a fractional value.")


_EXACT, _DEFAULT, _SPECIFIED = range(3)


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """A filter of entities: by name (None: the default), or by type; `strict` excludes entities with other types."""

    names: Mapping[str, str | None]
    types: frozenset[str]
    strict: bool

    @classmethod
    def of(cls, components: Sequence[tuple[str, int, str | None]], *, strict: bool) -> QuotaFilter:
        """Return the filter of a request's components: types, kinds of match, and names."""
        names: dict[str, str | None] = {}
        types: set[str] = set()
        for kind, match_type, match in components:
            _check_component(kind, match_type, match, names.keys() | types)
            if match_type == _SPECIFIED:
                types.add(kind)
            else:
                names[kind] = match
        asked = names.keys() | types
        if IP in asked and len(asked) > 1:
            raise InvalidRequestError(
                "Invalid entity filter component combination. IP filter component should not be used with user or "
                "clientId filter component."
            )
        return cls(names, frozenset(types), strict)

    def matches(self, entity: QuotaEntity) -> bool:
        parts = dict(entity)
        if any(kind not in parts or parts[kind] != name for kind, name in self.names.items()):
            return False
        if not self.types <= parts.keys():
            return False
        return not self.strict or len(parts) == len(self.names) + len(self.types)


def _check_component(kind: str, match_type: int, match: str | None, seen: frozenset[str] | set[str]) -> None:
    if not kind:
        raise InvalidRequestError("Invalid empty entity type.")
    if kind in seen:
        raise InvalidRequestError(f"Entity type {kind} cannot appear more than once in the filter.")
    if kind not in (USER, CLIENT_ID, IP):
        raise UnsupportedVersionError(f"Unsupported entity type {kind}")
    names = {_EXACT: "EXACT", _DEFAULT: "DEFAULT", _SPECIFIED: "SPECIFIED"}
    if match_type not in names:
        raise InvalidRequestError(f"Unknown match type {match_type}")
    if match_type == _EXACT and match is None:
        raise InvalidRequestError("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if match_type != _EXACT and match is not None:
        raise InvalidRequestError(
            f"Request specified MATCH_TYPE_{names[match_type]}, but also specified a match string."
        )
