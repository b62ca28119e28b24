"""What a quiet producer notices of large requests beside it: its p99, and what held the broker's loop the longest.

    python -m benchmarks.loop [--beside create-topics,metadata] [--kafka] [--json FILE]

A broker with 2,000 topics of five partitions. One producer sends a record of 1 KiB every 5 ms, each at its time, and
waits for it (`acks=all`): first alone, then beside each neighbour, which is a process of its own. A callback of the
loop counts from 1 ms on. On a machine with other work, look at its CPU, not at its time. With `--kafka` the neighbours
visit Apache Kafka too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.wire import Wire

from benchmarks.produce import batch
from benchmarks.support import wire
from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.brokers import Broker, Kafka, Stratalog
from benchmarks.support.client import Client
from benchmarks.support.measure import percentile
from benchmarks.support.neighbours import NEIGHBOURS, PARTITIONS_EACH, TOPICS, create, topic_names
from stratalog.config import SLOW_CALLBACK_MS

INTERVAL_S = 0.005
QUIET_S = 5.0
SLOW_MS = 1
_HELD = re.compile(r"event loop was held for (\d+) ms \((\d+) ms of CPU\) by ([^;\n]*)")
_SETTINGS = {"group.initial.rebalance.delay.ms": "1000", "group.max.size": "10000"}


class Watched(Stratalog):
    """A broker that logs all that holds its loop."""

    @property
    def command(self) -> Sequence[str]:
        python, _, _, *rest = super().command
        return [python, "-m", "benchmarks.support.watched_broker", *rest]


@dataclass(frozen=True, slots=True)
class Held:
    """A callback of the loop that took long, in milliseconds."""

    ms: int
    cpu_ms: int
    by: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Times in milliseconds, but for the seconds that the neighbour's requests took."""

    broker: str
    neighbour: str
    requests: int
    seconds: float
    cpu_s: float
    p99_alone: float
    p99_beside: float
    most: float
    held: Held | None

    def row(self) -> str:
        held = "" if self.held is None else f"{self.held.ms} ({self.held.cpu_ms}) {self.held.by}"
        return (
            f"| {self.broker} | {self.neighbour} | {self.requests:,} | {self.seconds:.2f} | {self.cpu_s:.2f} | "
            f"{self.p99_alone:.1f} | {self.p99_beside:.1f} | {self.p99_beside / self.p99_alone:.1f} | {self.most:.0f} |"
            f" {held} |"
        )


HEAD = (
    "| broker | beside | requests | seconds | CPU | p99 alone | p99 beside | ratio | most | longest callback (CPU) |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def latencies(broker: Broker, ended: Callable[[], bool]) -> list[float]:
    """Milliseconds from when each record was due."""
    request = wire.produce_request("good", batch(1, 1024))
    size = wire.ProduceResponseLayout.of("good").size
    taken = []
    with Client(broker.address) as client:
        client.exchange(request, size)
        due = time.perf_counter()
        while not ended():
            due += INTERVAL_S
            time.sleep(max(0.0, due - time.perf_counter()))
            client.exchange(request, size)
            taken.append((time.perf_counter() - due) * 1e3)
    return taken


def longest(log: Path, position: int) -> Held | None:
    """Return the callback that took the most CPU, of those logged behind a position."""
    if not log.exists():
        return None
    found = _HELD.finditer(log.read_bytes()[position:].decode(errors="replace"))
    return max((Held(int(m[1]), int(m[2]), m[3].strip()) for m in found), key=lambda held: held.cpu_ms, default=None)


def beside(broker: Broker, name: str, log: Path) -> Outcome:
    until = time.monotonic() + QUIET_S
    alone = latencies(broker, lambda: time.monotonic() > until)
    command = [sys.executable, "-m", "benchmarks.support.neighbours", name, broker.bootstrap_servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it is at work
        position = log.stat().st_size if log.exists() else 0
        cpu_s = broker.cpu_seconds()
        taken = latencies(broker, lambda: process.poll() is not None)
        cpu_s = broker.cpu_seconds() - cpu_s
        said = json.loads(process.communicate()[0])
    p99 = percentile(alone, 0.99), percentile(taken, 0.99)
    return Outcome(broker.name, name, said["done"], said["seconds"], cpu_s, *p99, max(taken), longest(log, position))


def main(argv: Sequence[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--beside", default=",".join(NEIGHBOURS), help="(default: all)")
    parser.add_argument("--kafka", action="store_true", help="measure Apache Kafka too")
    options = parser.parse_args(argv)
    outcomes = []
    print(HEAD)
    with tempfile.TemporaryDirectory(prefix="stratalog-loop-") as directory, ExitStack() as stack:
        ours = Watched(Path(directory) / "ours", {**_SETTINGS, SLOW_CALLBACK_MS: str(SLOW_MS)})
        brokers: list[Broker] = [stack.enter_context(ours)]
        if options.kafka:
            brokers.append(stack.enter_context(Kafka(Path(directory) / "kafka", _SETTINGS)))
        for broker in brokers:
            broker.create_topic("good")
            with Wire(broker.bootstrap_servers, timeout_s=600) as client:
                names = topic_names("topic", TOPICS)
                for begin in range(0, TOPICS, 100):
                    create(client, names[begin : begin + 100], PARTITIONS_EACH)
        time.sleep(2)
        for name in options.beside.split(","):
            for broker in brokers:
                log = Path(directory) / "ours" / "stratalog.log" if broker is ours else Path("-")
                outcomes.append(beside(broker, name, log))
                print(outcomes[-1].row(), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(each) for each in outcomes], indent=2) + "\n")


if __name__ == "__main__":
    main()
