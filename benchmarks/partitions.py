"""What partitions cost a broker that nothing asks, against Kafka 4.4.0: start, stop, memory, CPU; and how that grows.

    python -m benchmarks.partitions [--sizes 100,1000,10000] [--rounds 3] [--idle-seconds 20] [--json FILE]

At each size both brokers restart in turn after a clean stop, on a directory with topics of so many empty partitions:
from the start of the process to the first answered request, then `--settle-seconds` for what follows a start, then the
CPU of `--idle-seconds` and the resident memory, then from SIGTERM to the end of the process.

Then one line for each figure says whether ours grows linearly at most: from the last size but one to the last it may
grow by no more a partition than between the two before, or than the rounds at one size differ. Exit code 1 if not.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from benchmarks.start import measure_restarts
from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.measure import Rounds
from benchmarks.support.report import Report, Result, figure


class Job(NamedTuple):
    """A figure of a restart: its name, that of its samples, and how it is shown."""

    name: str
    what: str
    unit: str
    scale: float
    target: float | None


JOBS: Final = (
    Job("start to ready", "start_seconds", "s", 1.0, 0.5),
    Job("CPU until ready", "cpu_seconds", "s", 1.0, 0.5),
    Job("stop", "stop_seconds", "s", 1.0, 1.0),
    Job("resident memory when idle", "resident_bytes", "MB", 1e6, 0.5),
    Job("CPU when idle", "idle_share", "% of a core", 0.01, 0.5),
)


class Growth(NamedTuple):
    """The growth of a figure by partition, between two sizes and between the next two."""

    before: float
    after: float
    #: By how much more a partition it may grow: what the rounds at one size differ.
    noise: float

    @property
    def is_linear_at_most(self) -> bool:
        return self.after <= max(self.before, 0.0) + self.noise


def growth(sizes: Sequence[int], samples: Sequence[Sequence[float]]) -> Growth:
    """Return how a figure grows over the last three of ascending sizes, with its samples at each."""
    (small, middle, large), values = sizes[-3:], [sorted(each) for each in samples[-3:]]
    medians = [each[len(each) // 2] for each in values]
    noise = max(each[-1] - each[0] for each in values) / (middle - small)
    return Growth((medians[1] - medians[0]) / (middle - small), (medians[2] - medians[1]) / (large - middle), noise)


def growth_line(job: Job, found: Growth) -> str:
    """Return the verdict on one figure, in its unit for each 1,000 partitions."""
    before, after, noise = (each / job.scale * 1000 for each in found)
    verdict = "linear at most" if found.is_linear_at_most else "MORE THAN LINEAR"
    return (
        f"{job.name}: {verdict}: {figure(before)} {job.unit} for each 1,000 partitions, then {figure(after)} "
        f"(rounds differ by {figure(noise)})"
    )


def report_growth(measured: Mapping[int, Rounds]) -> bool:
    """Print how each figure of ours grows. Return whether all do so linearly at most."""
    sizes = sorted(measured)
    is_linear = True
    for job in JOBS:
        samples = [[each[job.what] for each in measured[size].samples[measured[size].ours]] for size in sizes]
        found = growth(sizes, samples)
        is_linear &= found.is_linear_at_most
        print(growth_line(job, found), flush=True)
    return is_linear


def main(argv: Sequence[str] | None = None) -> int:
    parser = benchmark_parser(__doc__, rounds=3)
    parser.add_argument("--sizes", default="100,1000,10000", help="(default: 100,1000,10000)")
    parser.add_argument("--idle-seconds", type=float, default=20, help="whose CPU is counted (default: 20)")
    parser.add_argument("--settle-seconds", type=float, default=10, help="after a start, not counted (default: 10)")
    options = parser.parse_args(argv)
    try:
        sizes = sorted({int(each) for each in options.sizes.split(",")})
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1:
        parser.error(f"--sizes {options.sizes}: expected numbers of partitions, such as 100,1000,10000")
    report = Report(options.json)
    measured = {}
    for size in sizes:
        rounds = measured[size] = measure_restarts(
            size, rounds=options.rounds, idle_seconds=options.idle_seconds, settle_seconds=options.settle_seconds
        )
        for job in JOBS:
            result = Result.of(
                f"{job.name}, {size:,} partitions",
                rounds,
                job.what,
                unit=job.unit,
                scale=job.scale,
                target=job.target,
                more_is_better=False,
            )
            report.add(result, rounds)
    report.close()
    return 0 if len(sizes) < 3 or report_growth(measured) else 1


if __name__ == "__main__":
    sys.exit(main())
