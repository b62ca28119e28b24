"""How far groups are behind in partitions that other brokers lead: their leaders are asked for the ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from stratalog.broker.share import LatestOffsets
from stratalog.web.viewer import ConsoleViewer

#: How long a page waits for other brokers. What they have not answered then has no lag.
_PATIENCE_S: Final = 2.0

_Place = tuple[str, int]


def with_lag_elsewhere(viewer: ConsoleViewer, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of groups, with the lag of partitions that this broker does not have where their leaders say it."""
    if viewer.broker.cluster is None:
        return list(rows)
    wanted = {_place(row) for row in rows if row["lag"] is None and viewer.elsewhere(*_place(row)) is not None}
    if not wanted:
        return list(rows)
    ends = viewer.wait_for(_ends(viewer, wanted))
    return [_filled(row, ends[_place(row)]) if _place(row) in ends else row for row in rows]


def _place(row: Mapping[str, Any]) -> _Place:
    return row["topic"], row["partition"]


def _filled(row: dict[str, Any], end: int) -> dict[str, Any]:
    lag = max(end - row["committedOffset"], 0)
    return {**row, "highWatermark": end, "lag": lag, "lagMs": None if lag else 0}


async def _ends(viewer: ConsoleViewer, places: Iterable[_Place]) -> dict[_Place, int]:
    ends = LatestOffsets(viewer.broker)
    asked = {place: asyncio.ensure_future(ends.of(*place)) for place in places}
    _, late = await asyncio.wait(asked.values(), timeout=_PATIENCE_S)
    for each in late:
        each.cancel()
    found = {place: each.result() for place, each in asked.items() if each not in late}
    return {place: end for place, end in found.items() if end is not None}
