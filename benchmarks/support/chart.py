"""A picture of a curve: two lines over the same places, both axes logarithmic, as SVG. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, NamedTuple

from benchmarks.support.report import figure

WIDTH, HEIGHT = 560, 320
LEFT, RIGHT, TOP, BOTTOM = 70, 90, 48, 52
INK, SOFT, GRID, CARD = "#1c2b2a", "#5b6b6a", "#dbe4e3", "#f7faf9"
COLOURS: Final = ("#00796b", "#c2571a")
_HEAD: Final = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    ' role="img" font-family="system-ui, sans-serif" font-size="12">'
)


class Line(NamedTuple):
    """`points`: what was measured at each x, ascending."""

    name: str
    points: Sequence[tuple[float, float]]


class _Axis:
    """From values to pixels, by their logarithms; whole powers of ten are its ticks."""

    def __init__(self, values: Iterable[float], start: float, end: float, *, tight: bool) -> None:
        logs = [math.log10(value) for value in values]
        self._low: float = min(logs) if tight else math.floor(min(logs))
        self._high: float = max(logs) if tight else math.ceil(max(logs))
        if self._low == self._high:
            self._low, self._high = self._low - 0.5, self._high + 0.5
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return round(self._start + share * (self._end - self._start), 1)

    @property
    def ticks(self) -> list[float]:
        """Powers of ten within it, with 2 and 5 of each where there are few."""
        tens = range(math.floor(self._low), math.ceil(self._high) + 1)
        steps = (1, 2, 5) if self._high - self._low < 1.5 else (1,)
        found = [step * 10.0**ten for ten in tens for step in steps]
        return [tick for tick in found if self._low - 1e-9 <= math.log10(tick) <= self._high + 1e-9]


def draw(title: str, x_label: str, y_label: str, lines: Sequence[Line]) -> str:
    """The picture. Every value is positive, and each line has a point at least."""
    points = [point for line in lines for point in line.points]
    across = _Axis((x for x, _ in points), LEFT, WIDTH - RIGHT, tight=True)
    up = _Axis((y for _, y in points), HEIGHT - BOTTOM, TOP, tight=False)
    parts = [
        _HEAD,
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="{CARD}"/>',
        _text(LEFT, 24, title, INK, bold=True),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label, SOFT, anchor="middle"),
        _text(LEFT, 40, y_label, SOFT),
    ]
    for tick in up.ticks:
        parts.append(_rule(LEFT, up.at(tick), WIDTH - RIGHT, up.at(tick)))
        parts.append(_text(LEFT - 8, up.at(tick) + 4, _short(tick), SOFT, anchor="end"))
    for x in sorted({x for x, _ in points}):
        parts.append(_rule(across.at(x), TOP, across.at(x), HEIGHT - BOTTOM))
        parts.append(_text(across.at(x), HEIGHT - BOTTOM + 18, _short(x), SOFT, anchor="middle"))
    for line, colour in zip(lines, COLOURS, strict=False):
        places = [(across.at(x), up.at(y)) for x, y in line.points]
        path = " ".join(f"{x:g},{y:g}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        parts += [
            f'<circle cx="{x:g}" cy="{y:g}" r="3.5" fill="{colour}"><title>{escape(line.name)}: {figure(value)}'
            "</title></circle>"
            for (x, y), (_, value) in zip(places, line.points, strict=True)
        ]
        parts.append(_text(places[-1][0] + 10, places[-1][1] + 4, line.name, colour, bold=True))
    return "\n".join([*parts, "</svg>", ""])


def _text(x: float, y: float, text: str, colour: str, *, anchor: str = "start", bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(text)}</text>'


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{GRID}"/>'


def _short(value: float) -> str:
    """A tick as people write it: 0.2, 500, 10 k, 2 M."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if value >= size:
            return f"{value / (1e3 if unit == ' k' else size):g}{unit}"
    return f"{value:g}"
