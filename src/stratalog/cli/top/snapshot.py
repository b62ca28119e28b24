"""What `stratalog top` shows: the answers of a broker's web address at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Final

from stratalog.cli.web_address import NotAllowedError, NotOursError, WebAddress

#: Of topics, groups and partitions of the tier, more than a screen has room for.
_ROWS: Final = 100


class TopOrder(Enum):
    """What topics are sorted by."""

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
    """One look at a broker. Groups and tier are None where the access rules hide them."""

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
        """Return it for machines; of the rates the newest ones."""
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


def look(web: WebAddress, order: TopOrder) -> TopSnapshot:
    """Ask for everything. Raises UnreachableError, or NotOursError for what is no broker of this version."""
    overview = web.get("/api/overview")
    direction = "asc" if order is TopOrder.NAME else "desc"
    topics = web.get("/api/topics", {"sort": _SORTS[order], "order": direction, "size": _ROWS})
    groups = _allowed(web, "/api/groups", {"sort": "lag", "order": "desc", "size": _ROWS})
    tier = _allowed(web, "/api/tier", {"show": "all"}) if overview.get("isTiered") else None
    try:
        return TopSnapshot(
            at_ms=int(overview["atMs"]),
            broker={name: overview[name] for name in ("nodeId", "clusterId", "bootstrapServers", "isStalled")},
            rates=tuple(overview["rates"]),
            requests=tuple(sorted(overview["requests"], key=lambda each: (-each["perSecond"], -each["requests"]))),
            numbers={**overview["numbers"], "topics": overview["topicCount"]},
            disks=tuple(overview["disks"]),
            attention=tuple(overview["attention"]),
            topics_found=int(topics["found"]),
            topics=tuple(topics["topics"]),
            groups_found=None if groups is None else int(groups["found"]),
            groups=() if groups is None else tuple(sorted(groups["groups"], key=lambda each: -each["lag"])),
            tier=tier,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise NotOursError(f"{web.url} does not answer like a broker of this version of stratalog") from error


def _allowed(web: WebAddress, path: str, fields: Mapping[str, object]) -> dict[str, Any] | None:
    try:
        return web.get(path, fields)
    except NotAllowedError:
        return None
