"""The data that `stratalog top` shows at one moment, and its first source: the web address of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from types import UnionType
from typing import Any, Final, Protocol, TypeAlias

from stratalog.cli.web_address import NotAllowedError, NotOursError, WebAddress
from stratalog.wire.client import UnreachableError

#: The fields of rows and their types. None is allowed where the type includes it.
_Fields: TypeAlias = Mapping[str, type | UnionType]
_NUMBER: Final = int | float
_RATES: Final[_Fields] = dict.fromkeys(("bytesIn", "bytesOut", "recordsIn", "waitP99Ms"), _NUMBER)
_REQUESTS: Final[_Fields] = {
    "name": str,
    **dict.fromkeys(("perSecond", "p50Ms", "p99Ms", "maxMs", "requests"), _NUMBER),
}
_NUMBERS: Final[_Fields] = dict.fromkeys(("partitions", "records", "localBytes", "offline"), int)
_TIER_NUMBERS: Final[_Fields] = dict.fromkeys(
    ("remoteBytes", "uploadBytes", "uploadSegments", "deleteBytes", "deleteSegments"), int
)
_DISKS: Final[_Fields] = {
    "path": str,
    "offline": str | None,
    **dict.fromkeys(("totalBytes", "usedBytes", "freeBytes", "logBytes"), int | None),
}
_ATTENTION: Final[_Fields] = dict.fromkeys(("severity", "title", "text"), str)
_TOPICS: Final[_Fields] = {
    "name": str,
    **dict.fromkeys(("bytesInRate", "bytesOutRate"), _NUMBER),
    **dict.fromkeys(("records", "localBytes", "remoteBytes", "uploadBytes", "partitions"), int),
}
_GROUPS: Final[_Fields] = {"id": str, "lag": int, "lagMs": int | None, "state": str, "topics": list}
_TIER: Final[_Fields] = {
    "topic": str,
    "partition": int,
    "isFailing": bool,
    "uploadSegments": int,
    "uploadBytes": int,
    "reason": str,
    "failures": list,
}

#: Rows of topics, groups and tiered partitions to fetch: more than a screen shows.
ROWS: Final = 100


class TopOrder(Enum):
    """The order of topics."""

    IN = "in"
    OUT = "out"
    RECORDS = "records"
    LOCAL = "local"
    UPLOAD = "upload"
    NAME = "name"


#: What the page of topics calls these orders.
_SORTS: Final[Mapping[TopOrder, str]] = {
    TopOrder.IN: "rate",
    TopOrder.OUT: "out",
    TopOrder.RECORDS: "records",
    TopOrder.LOCAL: "local",
    TopOrder.UPLOAD: "upload",
    TopOrder.NAME: "name",
}


@dataclass(frozen=True, slots=True)
class TopSnapshot:
    """One look at a broker, or at a cluster. Groups and tier are None where the access rules hide them.

    What a source does not know is left out of `rates`, and None in rows and `numbers`. `broker` has no `nodeId` for a
    cluster.
    """

    at_ms: int
    broker: Mapping[str, Any]
    #: Rates of the last minutes, each of some seconds; the last is the newest.
    rates: tuple[Mapping[str, Any], ...]
    requests: tuple[Mapping[str, Any], ...]
    numbers: Mapping[str, Any]
    disks: tuple[Mapping[str, Any], ...]
    attention: tuple[Mapping[str, Any], ...]
    topics_found: int
    topics: tuple[Mapping[str, Any], ...]
    groups_found: int | None
    groups: tuple[Mapping[str, Any], ...]
    tier: Mapping[str, Any] | None

    def json(self) -> dict[str, Any]:
        """Return the JSON form, with the newest rates only."""
        fields = asdict(self)
        return {
            "type": "broker",
            "atMs": fields.pop("at_ms"),
            "broker": fields.pop("broker"),
            "rates": self.rates[-1] if fields.pop("rates") else None,
            "topicsFound": fields.pop("topics_found"),
            "groupsFound": fields.pop("groups_found"),
            **fields,
        }


class TopSource(Protocol):
    """A source of looks. `name` is its address, `kind` the key of the address in JSON."""

    @property
    def kind(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def has_rates(self) -> bool:
        """Return whether the next look has rates. A source that computes them needs one look before."""
        ...

    def look(self, order: TopOrder) -> TopSnapshot:
        """Take a look. Raises UnreachableError, or NotOursError if a retry does not help."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class WebSource:
    """Looks at one broker by its web address. `hint` follows the error when nothing listens there."""

    kind: Final = "web"
    has_rates: Final = True

    def __init__(self, web: WebAddress, hint: str = "") -> None:
        self._web, self._hint = web, hint
        self.name = web.url

    def look(self, order: TopOrder) -> TopSnapshot:
        """Take a look. Raises UnreachableError, or NotOursError if it is not a broker of this version."""
        try:
            return look(self._web, order)
        except UnreachableError as error:
            if not self._hint:
                raise
            raise UnreachableError(f"{error}; {self._hint}") from error

    def close(self) -> None:
        """Do nothing: each request had its own connection."""


def look(web: WebAddress, order: TopOrder) -> TopSnapshot:
    """Take a look. Raises UnreachableError, or NotOursError if it is not a broker of this version."""
    overview = web.get("/api/overview")
    direction = "asc" if order is TopOrder.NAME else "desc"
    topics = web.get("/api/topics", {"sort": _SORTS[order], "order": direction, "size": ROWS})
    groups = _allowed(web, "/api/groups", {"sort": "lag", "order": "desc", "size": ROWS})
    tier = _allowed(web, "/api/tier", {"show": "all"}) if overview.get("isTiered") else None
    try:
        return TopSnapshot(
            at_ms=int(overview["atMs"]),
            broker={name: overview[name] for name in ("nodeId", "clusterId", "bootstrapServers", "isStalled")},
            rates=_rows(overview["rates"], _RATES),
            requests=tuple(
                sorted(_rows(overview["requests"], _REQUESTS), key=lambda each: (-each["perSecond"], -each["requests"]))
            ),
            numbers={
                **_row(overview["numbers"], _NUMBERS if tier is None else {**_NUMBERS, **_TIER_NUMBERS}),
                "topics": int(overview["topicCount"]),
            },
            disks=_rows(overview["disks"], _DISKS),
            attention=_rows(overview["attention"], _ATTENTION),
            topics_found=int(topics["found"]),
            topics=_rows(topics["topics"], _TOPICS),
            groups_found=None if groups is None else int(groups["found"]),
            groups=()
            if groups is None
            else tuple(sorted(_rows(groups["groups"], _GROUPS), key=lambda each: -each["lag"])),
            tier=None if tier is None else {**tier, "rows": [_tier_row(each) for each in tier["rows"]]},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise NotOursError(f"{web.url} does not answer like a broker of this version of stratalog") from error


def _rows(found: Any, fields: _Fields) -> tuple[Mapping[str, Any], ...]:
    return tuple(_row(each, fields) for each in found)


def _row(found: Any, fields: _Fields) -> Mapping[str, Any]:
    """Return a row with the fields that are shown. Raises KeyError or TypeError for a wrong answer."""
    for name, kind in fields.items():
        if not isinstance(found[name], kind):
            raise TypeError(f"{name} is {found[name]!r}")
    row: Mapping[str, Any] = found
    return row


def _tier_row(found: Any) -> Mapping[str, Any]:
    row = _row(found, _TIER)
    _rows(row["failures"], {"times": int})
    return row


def _allowed(web: WebAddress, path: str, fields: Mapping[str, object]) -> dict[str, Any] | None:
    try:
        return web.get(path, fields)
    except NotAllowedError:
        return None
