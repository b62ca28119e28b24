"""One line a job: the ratio, both figures, the target; with `--json`, every round's samples too."""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.support.measure import Rounds


@dataclass(frozen=True, slots=True)
class Result:
    """`ratio` is ours divided by the peer's. `target` bounds it: from below when more is better, else from above."""

    job: str
    ratio: float
    ours: float
    peer: float
    unit: str
    peer_name: str
    target: float | None = None
    more_is_better: bool = True
    #: Ours and the peer's of each round, in `unit`.
    pairs: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of(
        cls,
        job: str,
        rounds: Rounds,
        what: str,
        *,
        unit: str,
        scale: float = 1.0,
        target: float | None = None,
        more_is_better: bool = True,
    ) -> Result:
        """The medians of `what` in `rounds`, shown in `unit` after a division by `scale`."""
        ours, peer = (rounds.median(who, what) / scale for who in (rounds.ours, rounds.peer))
        pairs = tuple((a / scale, b / scale) for a, b in rounds.pairs(what))
        return cls(job, rounds.ratio(what), ours, peer, unit, rounds.peer, target, more_is_better, pairs)

    @property
    def is_met(self) -> bool:
        if self.target is None:
            return True
        return self.ratio >= self.target if self.more_is_better else self.ratio <= self.target

    def line(self) -> str:
        sign = ">=" if self.more_is_better else "<="
        verdict = "" if self.is_met else ", missed"
        target = "" if self.target is None else f"  [target {sign} {self.target:g}x{verdict}]"
        figures = f"stratalog {figure(self.ours)}, {self.peer_name} {figure(self.peer)} {self.unit}"
        return f"{self.job}: {self.ratio:.2f}x  ({figures}){target}"


def figure(value: float) -> str:
    """Three digits, as people write them."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


class Report:
    """Prints results as they come and writes all of them at the end."""

    def __init__(self, json_path: str | None) -> None:
        self._json_path = json_path
        self._results: list[dict[str, object]] = []

    def add(self, result: Result, rounds: Rounds | None = None, **settings: object) -> None:
        print(result.line(), flush=True)
        details = {**asdict(result), "is_met": result.is_met, "settings": settings}
        self._results.append({**details, "rounds": rounds.samples if rounds else None})

    def close(self) -> None:
        if self._json_path is None:
            return
        text = json.dumps({"machine": machine(), "results": self._results}, indent=2) + "\n"
        if self._json_path == "-":
            sys.stdout.write(text)
        else:
            Path(self._json_path).write_text(text, encoding="utf-8")


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
