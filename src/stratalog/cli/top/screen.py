"""The screen of `stratalog top`: lines for a width and a height, made of one snapshot. Nothing here waits or prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from stratalog.cli.escapes import visible
from stratalog.cli.out import counted
from stratalog.cli.top.snapshot import TopOrder, TopSnapshot
from stratalog.jobs import size_text

Row = Mapping[str, Any]

_GAP: Final = 2
_NAME_MIN: Final = 12
_ATTENTION_MAX: Final = 4
_PLAIN_ROWS: Final = 10
_SPARK: Final = "▁▂▃▄▅▆▇█"
_SPARK_POINTS: Final = 30
#: From this width on there is room for sparklines.
_WIDE: Final = 110
_DISK_WARN, _DISK_BAD = 0.85, 0.95
_STYLES: Final = {"bad": "bold red", "warn": "yellow", "info": "cyan"}
_MARKS: Final = {"bad": "!!", "warn": " !", "info": " i"}
_HEAD: Final = "reverse"
KEYS: Final = {
    "i": TopOrder.IN,
    "o": TopOrder.OUT,
    "r": TopOrder.RECORDS,
    "l": TopOrder.LOCAL,
    "u": TopOrder.UPLOAD,
    "n": TopOrder.NAME,
}


@dataclass(frozen=True, slots=True)
class TopView:
    """The data to show, and how. `problem` is why the broker has not responded since `problem_since_ms`."""

    #: The address of the source.
    address: str
    order: TopOrder
    now_ms: int
    snapshot: TopSnapshot | None
    problem: str | None = None
    problem_since_ms: int = 0
    is_paused: bool = False
    #: Whether keys are read; then a line names them.
    has_keys: bool = False
    #: Whether the terminal shows more than ASCII.
    has_blocks: bool = True


@dataclass(frozen=True, slots=True)
class _Column:
    """`rank` 0 is always shown; the highest rank is left out first where a line is too narrow."""

    title: str
    cell: Callable[[Row], str]
    rank: int = 0


@dataclass(frozen=True, slots=True)
class _Section:
    columns: tuple[_Column, ...]
    rows: Sequence[Row]
    #: The number of rows beyond those that were fetched.
    found: int
    style: Callable[[Row], str] = lambda _: ""


def lines_of(view: TopView, width: int, height: int | None) -> list[Text]:
    """Return at most `height` lines of at most `width` columns. With `height` None, ten rows of each section."""
    head = [_title(view), *_problem(view)]
    if view.snapshot is None:
        if view.problem is None:
            head.append(Text("waiting for the first answer", style="dim"))
        return _cut([*head, *_footer(view)], width, height)
    shown = view.snapshot
    head += [*_figures(shown, width, view.has_blocks), *_disks(shown), *_attention(shown)]
    sections = [each for each in _sections(shown, view) if each.rows]
    footer = _footer(view)
    if height is None:
        rooms = [_PLAIN_ROWS] * len(sections)
    else:
        rooms = _shared(height - len(head) - len(footer), sections)
    body = [line for each, room in zip(sections, rooms, strict=True) if room for line in _table(each, room, width)]
    lines = [*head, *body]
    if height is not None:
        lines = lines[: max(height - len(footer), 1)]
        lines += [Text()] * (height - len(footer) - len(lines))
    return _cut([*lines, *footer], width, height)


# --- lines ------------------------------------------------------------------------------------------------------------


def _title(view: TopView) -> Text:
    at = datetime.fromtimestamp(view.now_ms / 1000, UTC).strftime("%H:%M:%SZ")
    title = Text.assemble(("stratalog top", "bold"), f"  {at}  ", ("PAUSED  " if view.is_paused else "", "bold yellow"))
    if view.snapshot is None:
        return title.append(visible(view.address))
    broker = view.snapshot.broker
    who = counted(broker["brokers"], "broker") if broker["nodeId"] is None else f"broker {broker['nodeId']}"
    title.append(f"{who} at {visible(broker['bootstrapServers'])}", "bold")
    return title.append(f"  cluster {visible(broker['clusterId'])}")


def _problem(view: TopView) -> list[Text]:
    if view.problem is None:
        return []
    seconds = max(view.now_ms - view.problem_since_ms, 0) // 1000
    old = "" if view.snapshot is None else "  What follows is as it was before."
    return [Text(f"no answer for {seconds} s: {visible(view.problem)}{old}", style="bold red")]


def _figures(shown: TopSnapshot, width: int, has_blocks: bool) -> list[Text]:
    lines = []
    if shown.rates:
        last = shown.rates[-1]
        known: list[tuple[str, str, Callable[[float], str]]] = [
            ("in", "bytesIn", _rate),
            ("out", "bytesOut", _rate),
            ("records in", "recordsIn", lambda value: f"{_number(value)}/s"),
            ("wait for the broker p99", "waitP99Ms", _ms),
        ]
        rates = [each for each in known if each[1] in last]
        lines.append(_pairs([(name, text(last[key])) for name, key, text in rates]))
        if width >= _WIDE and has_blocks:
            parts: list[Any] = []
            for name, field, _ in known[:2]:
                if field not in last:
                    continue
                bars = _spark([float(each[field]) for each in shown.rates[-_SPARK_POINTS:]])
                parts += [(f"{name} ", "dim"), (bars, "cyan"), "   "]
            lines.append(Text.assemble(*parts))
    numbers = shown.numbers
    words = [
        ("topics", _number(numbers["topics"])),
        ("partitions", _number(numbers["partitions"])),
        ("records", _number(numbers["records"])),
        ("local", size_text(numbers["localBytes"])),
    ]
    if shown.tier is not None:
        words += [
            ("remote", size_text(numbers["remoteBytes"])),
            ("to upload", f"{size_text(numbers['uploadBytes'])} in {numbers['uploadSegments']:,}"),
        ]
        if numbers["deleteBytes"] is not None:
            words.append(("to delete", f"{size_text(numbers['deleteBytes'])} in {numbers['deleteSegments']:,}"))
    lines.append(_pairs(words))
    if numbers["offline"]:
        lines.append(Text(f"{counted(numbers['offline'], 'partition')} offline", style=_STYLES["bad"]))
    return lines


def _disks(shown: TopSnapshot) -> list[Text]:
    lines = []
    for disk in shown.disks:
        path = visible(disk["path"])
        if disk["offline"] is not None:
            lines.append(Text(f"disk {path}: offline", style=_STYLES["bad"]))
        elif disk["totalBytes"]:
            share = disk["usedBytes"] / disk["totalBytes"]
            style = _STYLES["bad"] if share >= _DISK_BAD else _STYLES["warn"] if share >= _DISK_WARN else ""
            logs = size_text(disk["logBytes"])
            text = f"{share:.0%} full, {size_text(disk['freeBytes'])} free, {logs} of logs"
            lines.append(Text.assemble(("disk ", "dim"), (text, style), (f"  {path}", "dim")))
    return lines


def _attention(shown: TopSnapshot) -> list[Text]:
    lines = [
        Text.assemble(
            (f"{_MARKS.get(each['severity'], ' i')} {visible(each['title'])}", _STYLES.get(each["severity"], "")),
            (f"  {visible(each['text'])}", "dim"),
        )
        for each in shown.attention[:_ATTENTION_MAX]
    ]
    more = len(shown.attention) - _ATTENTION_MAX
    return [*lines, Text(f"   and {more} more", style="dim")] if more > 0 else lines


def _footer(view: TopView) -> list[Text]:
    if not view.has_keys:
        return []
    order = " ".join(f"{key}:{each.value}" for key, each in KEYS.items())
    return [Text(f"q:quit p:pause  topics by {order}  (now {view.order.value})", style="dim")]


# --- tables -----------------------------------------------------------------------------------------------------------


def _sections(shown: TopSnapshot, view: TopView) -> list[_Section]:
    requests = (
        _Column("REQUEST", lambda row: visible(row["name"])),
        _Column("RATE", lambda row: f"{_number(row['perSecond'])}/s"),
        _Column("P50", lambda row: _ms(row["p50Ms"]), 1),
        _Column("P99", lambda row: _ms(row["p99Ms"])),
        _Column("LONGEST", lambda row: _ms(row["maxMs"]), 2),
        _Column("SO FAR", lambda row: _number(row["requests"]), 3),
    )
    knows_out = all(each["bytesOutRate"] is not None for each in shown.topics)
    topics = (
        _Column(f"TOPIC by {view.order.value}", lambda row: visible(row["name"])),
        _Column("IN/S", lambda row: _size(row["bytesInRate"])),
        *([_Column("OUT/S", lambda row: _size(row["bytesOutRate"]))] if knows_out else []),
        _Column("RECORDS", lambda row: _number(row["records"]), 2),
        _Column("LOCAL", lambda row: size_text(row["localBytes"]), 1),
        _Column("REMOTE", lambda row: size_text(row["remoteBytes"]), 3),
        _Column("TO UPLOAD", lambda row: size_text(row["uploadBytes"]), 3),
        _Column("PARTITIONS", lambda row: _number(row["partitions"]), 4),
    )
    groups = (
        _Column("GROUP by lag", lambda row: visible(row["id"])),
        _Column("LAG", lambda row: "-" if row["lag"] is None else _number(row["lag"])),
        _Column("BEHIND", lambda row: _span(row["lagMs"]), 1),
        _Column("STATE", lambda row: visible(row["state"]), 2),
        _Column("TOPICS", lambda row: _number(len(row["topics"])), 3),
    )
    sections = [
        _Section(requests, shown.requests, len(shown.requests)),
        _Section(topics, shown.topics, shown.topics_found),
        _Section(groups, shown.groups, shown.groups_found or 0),
    ]
    if shown.tier is not None:
        waits = [each for each in shown.tier["rows"] if each["isFailing"] or each["uploadSegments"]]
        columns = (
            _Column("TIER", lambda row: f"{visible(row['topic'])}-{row['partition']}"),
            _Column("TO UPLOAD", lambda row: f"{size_text(row['uploadBytes'])} in {row['uploadSegments']:,}"),
            _Column("WHY", lambda row: visible(row["reason"]), 1),
            _Column("FAILED", lambda row: str(sum(each["times"] for each in row["failures"])), 2),
        )
        sections.append(_Section(columns, waits, len(waits), lambda row: _STYLES["bad"] if row["isFailing"] else ""))
    return sections


def _shared(height: int, sections: Sequence[_Section]) -> list[int]:
    """Return how many rows each section shows in `height` lines. The head of a section takes one more.

    Sections take rows in turn, so a short one leaves its room to the others. If there is too little room, the last
    sections get none.
    """
    rooms = [0] * len(sections)
    left = height
    is_given = True
    while left > 0 and is_given:
        is_given = False
        for at, each in enumerate(sections):
            cost = 1 if rooms[at] else 2
            if rooms[at] < len(each.rows) and cost <= left:
                rooms[at] += 1
                left -= cost
                is_given = True
    return rooms


def _table(section: _Section, room: int, width: int) -> list[Text]:
    rows = section.rows[:room]
    columns = _that_fit(section.columns, rows, width)
    cells = [[each.cell(row) for each in columns] for row in rows]
    more = section.found - len(rows)
    name = columns[0].title + (f" (+{more:,})" if more > 0 else "")
    titles = [name, *(each.title for each in columns[1:])]
    by_column = zip(titles, zip(*cells, strict=True), strict=True)
    widths = [max(map(cell_len, (title, *column))) for title, column in by_column]
    widths[0] = max(width - sum(widths[1:]) - _GAP * (len(widths) - 1), 1)
    lines = [Text(_line(titles, widths), style=_HEAD)]
    lines += [Text(_line(row, widths), style=section.style(of)) for row, of in zip(cells, rows, strict=True)]
    return lines


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first = cells[0] if cell_len(cells[0]) <= widths[0] else set_cell_size(cells[0], max(widths[0] - 1, 0)) + "~"
    rest = [" " * (size - cell_len(cell)) + cell for cell, size in zip(cells[1:], widths[1:], strict=True)]
    return (" " * _GAP).join([set_cell_size(first, widths[0]), *rest])


def _that_fit(columns: Sequence[_Column], rows: Sequence[Row], width: int) -> list[_Column]:
    shown = list(columns)
    widths = {each.title: max(map(len, (each.title, *map(each.cell, rows)))) + _GAP for each in columns[1:]}
    while len(shown) > 1 and sum(widths[each.title] for each in shown[1:]) + _NAME_MIN > width:
        last = max(shown[1:], key=lambda each: each.rank)
        if not last.rank:
            break
        shown.remove(last)
    return shown


def _cut(lines: Iterable[Text], width: int, height: int | None) -> list[Text]:
    cut = list(lines)[:height]
    for line in cut:
        line.truncate(width, overflow="crop")
    return cut


# --- words ------------------------------------------------------------------------------------------------------------


def _pairs(words: Iterable[tuple[str, str]]) -> Text:
    return Text("   ").join(Text.assemble((f"{name} ", "dim"), (text, "bold")) for name, text in words)


def _number(count: float) -> str:
    return f"{count:,.0f}" if count >= 10 or count == int(count) else f"{count:.1f}"


def _rate(bytes_: float) -> str:
    return f"{size_text(int(bytes_))}/s"


def _size(count: float | None) -> str:
    return "-" if count is None else size_text(int(count))


def _ms(ms: float) -> str:
    return f"{ms / 1000:,.1f} s" if ms >= 10_000 else f"{ms:,.0f} ms" if ms >= 10 else f"{ms:.2f} ms"


def _span(ms: int | None) -> str:
    if ms is None:
        return "-"
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= length:
            return f"{ms / length:.1f} {unit}" if ms < 10 * length else f"{ms // length:,} {unit}"
    return f"{ms} ms"


def _spark(values: Sequence[float]) -> str:
    top = max(values, default=0.0)
    return "".join(_SPARK[min(int(each / top * len(_SPARK)), len(_SPARK) - 1)] if top else _SPARK[0] for each in values)
