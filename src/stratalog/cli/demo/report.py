"""What the demo shows: steps with progress, and tables at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from stratalog.cli.demo.flights import Answers
from stratalog.cli.demo.tiers import PartitionTiers

#: Columns of the tables where nobody's terminal sets them, as in a log of CI.
_PLAIN_WIDTH = 100


class Step:
    """One step under way: `advance` by so many, or `set` done and total."""

    def __init__(self, progress: Progress | None, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total) if progress else None
        self.result = ""

    def advance(self, count: int) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, count)

    def set(self, done: int, total: int) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=total)


@dataclass(frozen=True, slots=True)
class Timing:
    name: str
    seconds: float
    result: str


class Report:
    """Prints steps as they go (bars on stderr, only on a terminal; a line a step either way) and the tables."""

    def __init__(self) -> None:
        self.out = Console()
        if not self.out.is_terminal:
            self.out.width = _PLAIN_WIDTH
        self._err = Console(stderr=True)
        self.timings: list[Timing] = []

    @contextmanager
    def step(self, name: str, total: int | None = None) -> Iterator[Step]:
        """Run a step; its line appears when it ends, with its time and the result that it left."""
        started = time.monotonic()
        if self._err.is_terminal:
            counted = (BarColumn(), MofNCompleteColumn()) if total is not None else ()
            with Progress(
                SpinnerColumn(), TextColumn(name), *counted, TimeElapsedColumn(), console=self._err, transient=True
            ) as progress:
                step = Step(progress, total)
                yield step
        else:
            step = Step(None, total)
            yield step
        timing = Timing(name, time.monotonic() - started, step.result)
        self.timings.append(timing)
        self.out.print(
            f"[green]✓[/] {name:<48} [dim]{timing.seconds:6.1f} s[/]  {step.result}",
            highlight=False,
            soft_wrap=True,
        )

    def tiers(self, tiers: Sequence[PartitionTiers]) -> None:
        """Where the records lie; offsets below 'local from' are only in the object store."""
        table = _table("What lies where")
        table.add_column("partition", justify="right")
        for name in ("remote segments", "remote bytes", "remote to offset"):
            table.add_column(name, justify="right", style="cyan")
        for name in ("local segments", "local bytes", "local from offset"):
            table.add_column(name, justify="right", style="yellow")
        for tier in tiers:
            table.add_row(
                str(tier.partition),
                str(tier.remote_segments),
                f"{tier.remote_bytes:,}",
                f"{tier.remote_end_offset:,}",
                str(tier.local_segments),
                f"{tier.local_bytes:,}",
                f"{tier.local_start_offset:,}",
            )
        table.add_section()
        table.add_row(
            "all",
            str(sum(t.remote_segments for t in tiers)),
            f"{sum(t.remote_bytes for t in tiers):,}",
            "",
            str(sum(t.local_segments for t in tiers)),
            f"{sum(t.local_bytes for t in tiers):,}",
            "",
        )
        self.out.print(table)

    def answers(self, answers: Answers) -> None:
        """Delays by carrier over the year, with the worst month of each, and the busiest hour."""
        table = _table("Delays by carrier (from Spark)")
        for name in ("carrier", "flights", "mean departure delay", "mean arrival delay", "worst month"):
            table.add_column(name, justify="left" if name == "carrier" else "right")
        for carrier in sorted({carrier for carrier, _ in answers.delays}):
            months = {month: d for (name, month), d in answers.delays.items() if name == carrier}
            departed = sum(d.departed for d in months.values())
            arrived = sum(d.arrived for d in months.values())
            worst = max(months, key=lambda m: months[m].departure_delay_minutes / max(months[m].departed, 1))
            table.add_row(
                carrier,
                f"{sum(d.flights for d in months.values()):,}",
                f"{sum(d.departure_delay_minutes for d in months.values()) / max(departed, 1):.1f} min",
                f"{sum(d.arrival_delay_minutes for d in months.values()) / max(arrived, 1):.1f} min",
                datetime(2013, worst, 1).strftime("%B"),
            )
        self.out.print(table)
        hour = datetime.fromtimestamp(answers.busiest_hour_ms / 1000, UTC)
        self.out.print(f"Busiest hour: {hour:%Y-%m-%d %H:%M} UTC with {answers.busiest_hour_flights} departures")

    def rates(self, records: int, value_bytes: int, steps: Sequence[tuple[str, str]]) -> None:
        """Rates of the steps that moved records: (step's name, what to call it)."""
        seconds = {timing.name: timing.seconds for timing in self.timings}
        table = _table("Rates")
        for name in ("job", "seconds", "records/s", "MB/s of values"):
            table.add_column(name, justify="left" if name == "job" else "right")
        for step, label in steps:
            took = max(seconds[step], 1e-9)
            table.add_row(label, f"{took:.1f}", f"{records / took:,.0f}", f"{value_bytes / took / 1e6:.1f}")
        self.out.print(table)

    def problem(self, text: str) -> None:
        self.out.print(f"[red]✗[/] {text}", highlight=False, soft_wrap=True)


def _table(title: str) -> Table:
    return Table(title=f"\n{title}", title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1))
