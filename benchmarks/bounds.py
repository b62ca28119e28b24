"""Memory of a broker under attack, and what a good client notices: resident bytes before, during and after, and p99.

    python -m benchmarks.bounds [--attacks deaf,slow-loris] [--rounds 8] [--slice-s 3] [--count 2000] [--many 100000]
        [--slow-ms 5] [--nice 19] [--json FILE]

Two brokers with `queued.max.request.bytes` of 256 MiB and a few hundred topics, warmed up; one of them is attacked by a
process of its own. A good client of each sends a record of 1 KiB every 10 ms, each at its time, and waits for it
(`acks=all`). Each round has a quiet slice, in which the attackers are stopped (SIGSTOP), and one beside the attack.

    ratio        p99 at the attacked broker during the attack / p99 at the other one while it is quiet
    the cores    p99 at the other one during the attack / while it is quiet: what is left of the cores, no more
    to control   p99 at the attacked broker / at the other one, both during the attack

Each is the median of the rounds' own ratios. All share the cores, so that a part of the first is the machine's; the
last one is the broker's own part. Attacks that make the broker keep something (groups, producer ids, topics) are said
by bytes for each; those go on until there are so many (`--many`), or the rounds are over.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
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
INTERVAL_S = 0.01
SAMPLE_S = 0.05
#: How long the memory may take to come back.
SETTLE_S = 15.0
#: For what is under way when the attackers are stopped.
PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class Options:
    """Rounds of two slices of so many seconds, connections, what a broker is made to keep, niceness of attackers."""

    rounds: int
    slice_s: float
    count: int
    many: int
    nice: int


@dataclass(slots=True)
class Latencies:
    """p99 of each round, in milliseconds."""

    quiet: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    control: list[float] = field(default_factory=list)

    def ratio(self, ours: list[float], theirs: list[float]) -> float:
        return statistics.median(a / b for a, b in zip(ours, theirs, strict=True)) if ours else 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Sizes in MiB."""

    attack: str
    done: int
    before: float
    during: float
    after: float
    bytes_each: float | None
    p99: Latencies

    def row(self) -> str:
        p99 = self.p99
        each = "" if self.bytes_each is None else f"{self.bytes_each:,.0f}"
        medians = [statistics.median(each or [0.0]) for each in (p99.quiet, p99.beside, p99.control)]
        ratios = [
            p99.ratio(p99.beside, p99.quiet),
            p99.ratio(p99.control, p99.quiet),
            p99.ratio(p99.beside, p99.control),
        ]
        return (
            f"| {self.attack} | {self.done:,} | {self.before:.0f} | {self.during:.0f} | {self.after:.0f} | {each} | "
            + " | ".join([*(f"{value:.2f}" for value in medians), *(f"{value:.2f}" for value in ratios)])
            + f" | {len(p99.quiet)} |"
        )


HEAD = (
    "| attack | times | MB before | at most | after | bytes each | p99 quiet, ms | beside | control | ratio"
    " | the cores | to control | rounds |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)


class Good:
    """A client of one broker, which keeps its connection."""

    def __init__(self, broker: Broker) -> None:
        self._client = Client(broker.address)
        self._request = wire.produce_request("good", batch(1, 1024))
        self._size = wire.ProduceResponseLayout.of("good").size

    def close(self) -> None:
        self._client.close()

    def latencies(self, until: float) -> list[float]:
        """Seconds that each answer took from when its record was due, up to that time of `perf_counter`."""
        taken = []
        due = time.perf_counter()
        while due < until:
            time.sleep(max(0.0, due - time.perf_counter()))
            self._client.exchange(self._request, self._size)
            taken.append(time.perf_counter() - due)
            due += INTERVAL_S
        return taken


def p99_ms(clients: Sequence[Good], seconds: float) -> list[float]:
    """Return the p99 of each client, all at once."""
    until = time.perf_counter() + seconds
    found: dict[Good, float] = {}

    def run(client: Good) -> None:
        found[client] = percentile(client.latencies(until), 0.99) * 1e3

    threads = [threading.Thread(target=run, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[client] for client in clients]


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
def attackers(target: Broker, name: str, options: Options) -> Iterator[subprocess.Popen[str]]:
    """The attackers, which are stopped before they begin."""
    count = options.many if name in KEEPERS else options.count
    command = [sys.executable, "-m", "benchmarks.support.attackers", name, target.bootstrap_servers, str(count)]
    with subprocess.Popen(
        ["nice", "-n", str(options.nice), *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # they are about to begin
        process.send_signal(signal.SIGSTOP)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def ended(process: subprocess.Popen[str]) -> int:
    """End the attackers; return how many they did."""
    process.terminate()
    process.send_signal(signal.SIGCONT)
    return int(process.communicate()[0] or 0)


def measured(process: subprocess.Popen[str], ours: Good, other: Good, options: Options) -> Latencies:
    """Rounds, as long as the attackers are not done."""
    p99 = Latencies()
    for _ in range(options.rounds):
        time.sleep(PAUSE_S)
        quiet = p99_ms([ours, other], options.slice_s)[1]
        process.send_signal(signal.SIGCONT)
        beside, control = p99_ms([ours, other], options.slice_s)
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGSTOP)
        p99.quiet.append(quiet)
        p99.beside.append(beside)
        p99.control.append(control)
    return p99


def attack(broker: Broker, other: Broker, name: str, options: Options) -> Outcome:
    clients = Good(broker), Good(other)
    p99_ms(clients, PAUSE_S)
    before = broker.resident_bytes()
    with most_resident(broker) as most, attackers(broker, name, options) as process:
        p99 = measured(process, *clients, options)
        done = ended(process)
    after = settled(broker, before)
    for client in clients:
        client.close()
    each = (after - before) / done if name in KEEPERS and done else None
    return Outcome(name, done, before / MIB, most[0] / MIB, after / MIB, each, p99)


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
    parser = benchmark_parser(__doc__, rounds=8)
    parser.add_argument("--attacks", default=",".join(ATTACKS), help="(default: all)")
    parser.add_argument("--slice-s", type=float, default=3.0, help="seconds of each half of a round (default: 3)")
    parser.add_argument("--count", type=int, default=2000, help="connections (default: 2000)")
    parser.add_argument("--slow-ms", type=int, default=0, help="print what held the broker's loop for longer")
    parser.add_argument("--many", type=int, default=100_000, help="groups, ids and topics (default: 100000)")
    parser.add_argument("--nice", type=int, default=0, help="niceness of the attackers (default: 0)")
    options = parser.parse_args(argv)
    chosen = Options(options.rounds, options.slice_s, options.count, options.many, options.nice)
    settings = {"queued.max.request.bytes": str(HELD_BYTES), "group.initial.rebalance.delay.ms": "0"}
    if options.slow_ms:
        settings[SLOW_CALLBACK_MS] = str(options.slow_ms)
    outcomes = []
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory(prefix="stratalog-bounds-") as directory, ExitStack() as stack:
        other = stack.enter_context(Stratalog(Path(directory, "other"), settings))
        prepare(other)
        for name in options.attacks.split(","):
            with Stratalog(Path(directory, name), settings) as broker:
                prepare(broker)
                outcomes.append(attack(broker, other, name, chosen))
                print(outcomes[-1].row(), flush=True)
                if options.slow_ms:
                    print(*slow_callbacks(Path(directory, name)), sep="\n", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(each) for each in outcomes], indent=2) + "\n")


if __name__ == "__main__":
    main()
