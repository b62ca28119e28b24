"""Memory of a broker under attack, and what a good client notices: resident bytes before, during and after, and p99.

    python -m benchmarks.bounds [--attacks deaf,slow-loris] [--seconds 10] [--count 2000] [--many 100000]
        [--slow-ms 5] [--control] [--nice 19] [--json FILE]

A broker with `queued.max.request.bytes` of 256 MiB and a few hundred topics, warmed up. One good client sends a record
of 1 KiB every 20 ms, each at its time, and waits for it (`acks=all`): first alone, then beside the attack, which is a
process of its own. All share the cores, so a part of what the good client loses is the machine's, not the broker's.
`--control` measures that part: the same attack on a second broker, while the good client uses the first one. Attacks
that make the broker keep something (groups, producer ids, topics) are said by bytes for each.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.wire import Wire

from benchmarks.produce import batch
from benchmarks.support import wire
from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.attackers import ATTACKS, KEEPERS
from benchmarks.support.brokers import Broker, Stratalog
from benchmarks.support.client import Client
from benchmarks.support.measure import percentile
from stratalog.config import SLOW_CALLBACK_MS
from stratalog.wire import ApiKey

MIB = 1 << 20
HELD_BYTES = 256 * MIB
INTERVAL_S = 0.02
SAMPLE_S = 0.05
#: How long the memory may take to come back.
SETTLE_S = 15.0
P99_TARGET = 2.0


@dataclass(frozen=True, slots=True)
class Options:
    """How long each attack lasts in seconds, its connections, what it makes the broker keep, and its niceness."""

    seconds: float
    count: int
    many: int
    nice: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Sizes in MiB, times in milliseconds."""

    attack: str
    done: int
    before: float
    during: float
    after: float
    p99_alone: float
    p99_beside: float
    bytes_each: float | None
    #: Beside the attack on another broker; None: not measured.
    p99_control: float | None

    @property
    def ratio(self) -> float:
        return self.p99_beside / self.p99_alone

    @property
    def to_control(self) -> float:
        """What the broker alone adds: 1 is nothing."""
        return self.p99_beside / self.p99_control if self.p99_control else 0.0

    def row(self) -> str:
        each = "" if self.bytes_each is None else f"{self.bytes_each:,.0f}"
        control = ("", "") if self.p99_control is None else (f"{self.p99_control:.1f}", f"{self.to_control:.2f}")
        return (
            f"| {self.attack} | {self.done:,} | {self.before:.0f} | {self.during:.0f} | {self.after:.0f} | {each} | "
            f"{self.p99_alone:.1f} | {self.p99_beside:.1f} | {self.ratio:.1f} | {control[0]} | {control[1]} |"
        )


HEAD = (
    "| attack | times | before | at most | afterwards | bytes each | p99 alone | p99 beside | ratio | p99 control |"
    " to control |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)


class Good:
    """Latencies from when each record was due."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def during(self, ended: Callable[[], bool]) -> list[float]:
        request = wire.produce_request("good", batch(1, 1024))
        size = wire.ProduceResponseLayout.of("good").size
        taken = []
        with Client(self._broker.address) as client:
            due = time.perf_counter()
            while not ended():
                due += INTERVAL_S
                time.sleep(max(0.0, due - time.perf_counter()))
                client.exchange(request, size)
                taken.append(time.perf_counter() - due)
        return taken


@contextmanager
def most_resident(broker: Broker) -> Iterator[list[int]]:
    """A list of one number, which is the most that was seen."""
    most = [broker.resident_bytes()]
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(SAMPLE_S):
            most[0] = max(most[0], broker.resident_bytes())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        stop.set()
        thread.join()


def settled(broker: Broker, before: int) -> int:
    """What is resident when the attack is over: as soon as it is what it was, or after a while."""
    until = time.monotonic() + SETTLE_S
    while broker.resident_bytes() > before * 1.05 and time.monotonic() < until:
        time.sleep(0.5)
    return broker.resident_bytes()


@contextmanager
def attacked(target: Broker, name: str, options: Options) -> Iterator[subprocess.Popen[str]]:
    """The attackers, at work until the process ends; it prints how many they did."""
    count = options.many if name in KEEPERS else options.count
    command = [sys.executable, "-m", "benchmarks.support.attackers", name, target.bootstrap_servers]
    command = ["nice", "-n", str(options.nice), *command, str(options.seconds), str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has begun
        yield process


def attack(broker: Broker, name: str, options: Options, control: Broker | None) -> Outcome:
    good = Good(broker)
    until = time.monotonic() + options.seconds
    p99_alone = percentile(good.during(lambda: time.monotonic() > until), 0.99) * 1e3
    p99_control = None
    if control is not None:
        with attacked(control, name, options) as process:
            p99_control = percentile(good.during(lambda: process.poll() is not None), 0.99) * 1e3
        control.stop()
    before = broker.resident_bytes()
    with most_resident(broker) as most, attacked(broker, name, options) as process:
        beside = good.during(lambda: process.poll() is not None)
        done = int(process.communicate()[0] or 0)
    after = settled(broker, before)
    each = (after - before) / done if name in KEEPERS and done else None
    p99_beside = percentile(beside, 0.99) * 1e3
    return Outcome(name, done, before / MIB, most[0] / MIB, after / MIB, p99_alone, p99_beside, each, p99_control)


def prepare(broker: Broker) -> None:
    """Warm it up, with its native loops, and give it something to tell about."""
    broker.create_topic("good")
    broker.create_topic("attacked")
    with Wire(broker.bootstrap_servers) as client:
        topics = [{"name": f"topic-{n}", "num_partitions": 3, "replication_factor": 1} for n in range(300)]
        client.call(ApiKey.CREATE_TOPICS, 5, topics=topics, timeout=60_000)
    with Client(broker.address) as client:
        request = wire.produce_request("attacked", batch(1000, 100))
        client.produce_pipelined("attacked", request, 200, window=5, records=1000)
    time.sleep(3)


def slow_callbacks(directory: Path) -> list[str]:
    """Return the lines of the broker's log about what held its loop."""
    lines = (directory / "stratalog.log").read_text(errors="replace").splitlines()
    return [line for line in lines if "event loop was held" in line]


def main(argv: Sequence[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--attacks", default=",".join(ATTACKS), help="(default: all)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each (default: 10)")
    parser.add_argument("--count", type=int, default=2000, help="connections (default: 2000)")
    parser.add_argument("--slow-ms", type=int, default=0, help="print what held the broker's loop for longer")
    parser.add_argument("--many", type=int, default=100_000, help="groups, ids and topics (default: 100000)")
    parser.add_argument("--control", action="store_true", help="attack a second broker too, for comparison")
    parser.add_argument("--nice", type=int, default=0, help="niceness of the attackers (default: 0)")
    options = parser.parse_args(argv)
    chosen = Options(options.seconds, options.count, options.many, options.nice)
    settings = {"queued.max.request.bytes": str(HELD_BYTES), "group.initial.rebalance.delay.ms": "0"}
    if options.slow_ms:
        settings[SLOW_CALLBACK_MS] = str(options.slow_ms)
    outcomes = []
    print(HEAD)
    for name in options.attacks.split(","):
        with tempfile.TemporaryDirectory(prefix="stratalog-bounds-") as directory, ExitStack() as stack:
            broker = stack.enter_context(Stratalog(Path(directory), settings))
            prepare(broker)
            control: Broker | None = None
            if options.control:
                control = stack.enter_context(Stratalog(Path(directory, "control"), settings))
                prepare(control)
            outcomes.append(attack(broker, name, chosen, control))
            print(outcomes[-1].row(), flush=True)
            if options.slow_ms:
                print(*slow_callbacks(Path(directory)), sep="\n")
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(each) for each in outcomes], indent=2) + "\n")


if __name__ == "__main__":
    main()
