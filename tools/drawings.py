"""Draw the pictures of the explanations: segments, tiers, retention, replication.

Usage: `python -m tools.drawings [--check]`, in the root of the repository. It writes `docs/images/*.svg`. Colours stand
on a light card, so that a picture reads the same on light and dark pages.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

IMAGES = Path(__file__).parents[1] / "docs" / "images"
INK, SOFT, LINE = "#1c2b2a", "#5b6b6a", "#9fb3b1"
TEAL, TEAL_SOFT, BLUE_SOFT, AMBER_SOFT, RED_SOFT = "#00796b", "#cfe9e5", "#d6e4f7", "#fdebc8", "#f6d5d0"


class Drawing:
    def __init__(self, title: str, width: int, height: int) -> None:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            f' role="img" font-family="system-ui, sans-serif" font-size="14">'
        )
        self._parts = [
            head,
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#f7faf9"/>',
        ]

    def box(self, x: int, y: int, width: int, height: int, fill: str, label: str = "", *, dashed: bool = False) -> None:
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{fill}" stroke="{LINE}"{dash}/>'
        )
        if label:
            self.text(x + width // 2, y + height // 2 + 5, label, anchor="middle")

    def text(self, x: int, y: int, text: str, *, anchor: str = "start", colour: str = INK, bold: bool = False) -> None:
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(text)}</text>'
        )

    def line(self, x1: int, y1: int, x2: int, y2: int, colour: str = LINE, *, dashed: bool = False) -> None:
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="1.5"{dash}/>'
        )

    def arrow(self, x1: int, y1: int, x2: int, y2: int, colour: str = TEAL) -> None:
        """Draw an arrow that is horizontal or vertical."""
        self.line(x1, y1, x2, y2, colour)
        along = 1 if x2 + y2 > x1 + y1 else -1
        ends = (
            f"{x2 - 8 * along},{y2 - 5} {x2 - 8 * along},{y2 + 5}"
            if y1 == y2
            else f"{x2 - 5},{y2 - 8 * along} {x2 + 5},{y2 - 8 * along}"
        )
        self._parts.append(f'<polygon points="{x2},{y2} {ends}" fill="{colour}"/>')

    def __str__(self) -> str:
        return "\n".join([*self._parts, "</svg>", ""])


def segments() -> Drawing:
    drawing = Drawing("The segments of a partition", 760, 300)
    drawing.text(24, 34, "orders-0/", bold=True)
    for at, base in enumerate((0, 1000, 2000, 3000)):
        x, active = 24 + at * 172, at == 3
        drawing.box(x, 50, 156, 92, TEAL_SOFT if active else BLUE_SOFT, dashed=active)
        drawing.text(x + 78, 72, f"...{base:05d}.log", anchor="middle", bold=True)
        for batch in range(3 if active else 6):
            drawing.box(x + 10 + batch * 23, 86, 21, 26, "#ffffff")
        end = "appends go here" if active else f"offsets {base} to {base + 999}"
        drawing.text(x + 78, 132, end, anchor="middle", colour=SOFT)
        drawing.box(x, 150, 62, 26, "#ffffff", ".index")
        drawing.box(x + 68, 150, 88, 26, "#ffffff", ".timeindex")
        drawing.text(x + 78, 198, "active" if active else "sealed", anchor="middle", colour=TEAL if active else SOFT)
    drawing.text(24, 236, "Find offset 2417:", bold=True)
    drawing.text(162, 236, "names say segment 02000; its .index says: offset 2400 is at byte 163,840;")
    drawing.text(162, 258, "walk the batches from there to the one that holds 2417.")
    drawing.text(
        24, 284, "The small boxes are batches. Producers make them, and they are never packed again.", colour=SOFT
    )
    return drawing


def tiers() -> Drawing:
    drawing = Drawing("The two tiers of a partition", 760, 290)
    drawing.text(24, 34, "bucket (remote tier)", bold=True)
    drawing.text(24, 132, "disk (local tier)", bold=True)
    for at in range(6):
        x = 24 + at * 118
        drawing.box(x, 46, 110, 40, BLUE_SOFT, f"{at * 1000} to {at * 1000 + 999}") if at < 5 else None
        if at >= 3:
            drawing.box(x, 144, 110, 40, TEAL_SOFT, "active" if at == 5 else f"{at * 1000} to {at * 1000 + 999}")
        else:
            drawing.box(x, 144, 110, 40, "#f7faf9", "deleted", dashed=True)
    for x in (433, 551):
        drawing.arrow(x, 142, x, 90)
    drawing.text(560, 120, "copied when sealed")
    drawing.line(24, 200, 24, 216)
    drawing.text(24, 234, "log start offset 0")
    drawing.line(378, 200, 378, 216)
    drawing.text(378, 234, "local log start offset 3000", anchor="middle")
    drawing.line(614, 200, 614, 216)
    drawing.text(614, 234, "5000: not copied yet", anchor="middle")
    drawing.text(24, 268, "Below 3000 a fetch is answered from the bucket, from 3000 on from the disk.", colour=SOFT)
    return drawing


def retention() -> Drawing:
    drawing = Drawing("What retention deletes", 760, 270)
    drawing.text(24, 34, "retention.ms = 7 days", bold=True)
    kinds = (
        ("10 to 9 days", RED_SOFT, "deleted"),
        ("9 to 8 days", RED_SOFT, "deleted"),
        ("8 to 6 days", AMBER_SOFT, "kept whole"),
        ("6 to 3 days", TEAL_SOFT, "kept"),
        ("3 to 0 days", TEAL_SOFT, "active"),
    )
    for at, (age, fill, fate) in enumerate(kinds):
        x = 24 + at * 142
        drawing.box(x, 62, 134, 54, fill, age)
        drawing.text(x + 67, 140, fate, anchor="middle", bold=fate == "deleted")
    drawing.line(376, 40, 376, 62, TEAL)
    drawing.line(376, 106, 376, 122, TEAL)
    drawing.text(384, 50, "7 days ago", colour=TEAL)
    drawing.arrow(24, 176, 726, 176, LINE)
    drawing.text(24, 198, "older records", colour=SOFT)
    drawing.text(726, 198, "now", anchor="end", colour=SOFT)
    drawing.text(
        24, 230, "A segment goes when its newest record has expired. The third one holds records of eight days ago,"
    )
    drawing.text(24, 250, "which have expired, and of six days ago, which have not: it stays as a whole.")
    return drawing


def replication() -> Drawing:
    drawing = Drawing("Replicas of a partition", 760, 300)
    rows = (("broker 1: leader", 9), ("broker 2: in sync", 8), ("broker 3: behind", 4))
    for at, (name, records) in enumerate(rows):
        y = 52 + at * 64
        drawing.text(24, y + 25, name, bold=at == 0)
        for offset in range(records):
            fill = TEAL_SOFT if offset < 8 else AMBER_SOFT
            drawing.box(180 + offset * 56, y, 50, 40, fill, str(offset))
    drawing.line(625, 40, 625, 236, TEAL, dashed=True)
    drawing.text(619, 34, "high watermark 8", anchor="end", colour=TEAL)
    drawing.arrow(714, 72, 694, 72)
    drawing.text(750, 58, "producer", anchor="end", colour=SOFT)
    drawing.text(
        24, 262, "Broker 3 has left the in-sync replicas, so the high watermark is where broker 2 ends. Consumers"
    )
    drawing.text(24, 282, "read up to 7. Record 8 is acknowledged (acks=all) when broker 2 has it.")
    return drawing


DRAWINGS = {"segments": segments, "tiers": tiers, "retention": retention, "replication": replication}


def main(arguments: list[str]) -> int:
    stale = []
    for name, draw in DRAWINGS.items():
        path, text = IMAGES / f"{name}.svg", str(draw())
        if not path.exists() or path.read_text() != text:
            stale.append(path.name)
            if "--check" not in arguments:
                path.write_text(text)
    if stale and "--check" in arguments:
        print(f"run python -m tools.drawings: not as the code draws them: {', '.join(stale)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
