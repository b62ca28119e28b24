"""The output of the demo: steps with progress, and tables at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Console

from stratalog.cli.demo.flights import FlightFacts
from stratalog.cli.demo.tiers import PartitionTiers
from stratalog.jobs import Progress, terminal_progress
from stratalog.util import TableColumn, print_table

#: Width where no terminal sets one, as in a log of CI.
_PLAIN_WIDTH = 100


class DemoStep:
    """A step in progress: `advance` by a count, or `set` what is done. `result` is printed when it ends."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._done = 0
        self.result = ""

    def advance(self, count: int) -> None:
        self._done += count
        self._progress.advance(count)

    def set(self, done: int) -> None:
        self.advance(done - self._done)


@dataclass(frozen=True, slots=True)
class Timing:
    name: str
    seconds: float
    result: str


class DemoReport:
    """Prints steps as they go (bars on stderr, only on a terminal; a line a step either way) and the tables."""

    def __init__(self) -> None:
        self.out = Console()
        if not self.out.is_terminal:
            self.out.width = _PLAIN_WIDTH
        self.timings: list[Timing] = []

    @contextmanager
    def step(self, name: str, total: int = 0) -> Iterator[DemoStep]:
        """Run a step. Its line, with time and result, is printed when it ends."""
        started = time.monotonic()
        progress = terminal_progress()
        step = DemoStep(progress)
        progress.begin(name, total)
        try:
            yield step
        finally:
            progress.end()
        timing = Timing(name, time.monotonic() - started, step.result)
        self.timings.append(timing)
        self.out.print(
            f"[green]✓[/] {name:<48} [dim]{timing.seconds:6.1f} s[/]  {step.result}",
            highlight=False,
            soft_wrap=True,
        )

    def tiers(self, tiers: Sequence[PartitionTiers]) -> None:
        """Print the location of the records. Offsets below 'local from' are only in the object store."""
        columns = ("partition", "remote segments", "remote bytes", "remote to offset")
        rows: list[tuple[object, ...]] = [
            (
                tier.partition,
                tier.remote_segments,
                f"{tier.remote_bytes:,}",
                f"{tier.remote_end_offset:,}",
                tier.local_segments,
                f"{tier.local_bytes:,}",
                f"{tier.local_start_offset:,}",
            )
            for tier in tiers
        ]
        remote = sum(tier.remote_segments for tier in tiers), f"{sum(tier.remote_bytes for tier in tiers):,}"
        local = sum(tier.local_segments for tier in tiers), f"{sum(tier.local_bytes for tier in tiers):,}"
        rows.append(("all", *remote, "", *local, ""))
        self._table(
            "Segments by tier",
            [_number(name) for name in (*columns, "local segments", "local bytes", "local from offset")],
            rows,
        )

    def answers(self, answers: FlightFacts) -> None:
        """Print delays by carrier over the year, with the worst month of each, and the busiest hour."""
        names = ("flights", "mean departure delay", "mean arrival delay", "worst month")
        rows = []
        for carrier in sorted({carrier for carrier, _ in answers.delays}):
            months = {month: d for (name, month), d in answers.delays.items() if name == carrier}
            departed = sum(d.departed for d in months.values())
            arrived = sum(d.arrived for d in months.values())
            worst = max(months, key=lambda m: months[m].departure_delay_minutes / max(months[m].departed, 1))
            rows.append(
                (
                    carrier,
                    f"{sum(d.flights for d in months.values()):,}",
                    f"{sum(d.departure_delay_minutes for d in months.values()) / max(departed, 1):.1f} min",
                    f"{sum(d.arrival_delay_minutes for d in months.values()) / max(arrived, 1):.1f} min",
                    datetime(2013, worst, 1).strftime("%B"),
                )
            )
        self._table("Delays by carrier (from Spark)", ["carrier", *map(_number, names)], rows)
        hour = datetime.fromtimestamp(answers.busiest_hour_ms / 1000, UTC)
        self.out.print(f"Busiest hour: {hour:%Y-%m-%d %H:%M} UTC with {answers.busiest_hour_flights} departures")

    def rates(self, records: int, value_bytes: int, steps: Sequence[tuple[str, str]]) -> None:
        """Print rates of the steps that moved records: (step's name, its title)."""
        seconds = {timing.name: max(timing.seconds, 1e-9) for timing in self.timings}
        rows = [
            (
                label,
                f"{seconds[step]:.1f}",
                f"{records / seconds[step]:,.0f}",
                f"{value_bytes / seconds[step] / 1e6:.1f}",
            )
            for step, label in steps
        ]
        self._table("Rates", ["job", *map(_number, ("seconds", "records/s", "MB/s of values"))], rows)

    def _table(self, title: str, columns: Sequence[TableColumn | str], rows: Sequence[Sequence[object]]) -> None:
        self.out.print()
        print_table(columns, rows, title, is_terminal=self.out.is_terminal)

    def problem(self, text: str) -> None:
        self.out.print(f"[red]✗[/] {text}", highlight=False, soft_wrap=True)


def _number(name: str) -> TableColumn:
    return TableColumn(name, is_number=True)
