"""Three brokers of ours beside three of Kafka 4.4.0, each with a controller of Kafka's, on one machine.

    python -m benchmarks.cluster [--jobs memory,large,small,follow,failover,start] [--rounds 5] [--json FILE]

memory    a broker, ten seconds after the start
large     acks=all, three replicas: batches of 1 MB, one connection to each leader of three partitions
small     the same with 50 producers of records of 1 KB, one in a request, 5 of them unanswered
follow    two followers fetch what a leader has: their CPU for a MB, and the leader's
failover  kill -9 of a leader: until the next one confirms a record with acks=all
start     all brokers of a cluster with 1,000 partitions begin at once: until every replica is in sync

Both clusters run all the time, one of them idle. A first round of each job but `memory` does not count.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.produce import LARGE_RECORDS, LARGE_VALUE_BYTES, LARGE_WINDOW, batch
from benchmarks.support import wire
from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.client import Client
from benchmarks.support.clusters import NODES, BrokerCluster, kafka_cluster, stratalog_cluster
from benchmarks.support.many_producers import Target, produce_together
from benchmarks.support.measure import Rounds, Sample, alternate
from benchmarks.support.report import Report, Result

#: Each broker leads one partition, and follows the others.
PLACES = ([1, 2, 3], [2, 3, 1], [3, 1, 2])
PRODUCERS = 50
SMALL_VALUE_BYTES = 1024
FOLLOW_VALUE_BYTES = 1600
_NOT_OF_THE_WORK = ("jobs", "rounds", "json", "dir")
MIN_ISR = {"min.insync.replicas": "2"}

_topic_number = itertools.count()
Job = Callable[[BrokerCluster], Sample]


def new_topic() -> str:
    return f"cluster-{next(_topic_number):06d}"


def spent(cluster: BrokerCluster, before: dict[int, float]) -> dict[int, float]:
    """CPU of each broker since then."""
    return {node: after - before[node] for node, after in cluster.cpu_seconds().items()}


def large(count: int, cluster: BrokerCluster) -> Sample:
    topic, data = new_topic(), batch(LARGE_RECORDS, LARGE_VALUE_BYTES)
    cluster.create(topic, PLACES, **MIN_ISR)

    def run(number: int) -> None:
        request = wire.produce_request(topic, data, partition=number)
        with Client(cluster.nodes[PLACES[number][0]].address) as client:
            client.produce_pipelined(topic, request, count, window=LARGE_WINDOW, records=LARGE_RECORDS)

    before = cluster.cpu_seconds()
    seconds = in_threads(run, len(PLACES))
    cpu = sum(spent(cluster, before).values())
    cluster.delete(topic)
    total = len(PLACES) * count * len(data)
    return {"bytes_per_second": total / seconds, "cpu_seconds_per_megabyte": cpu / (total / 1e6)}


def small(count: int, cluster: BrokerCluster) -> Sample:
    topic, data = new_topic(), batch(1, SMALL_VALUE_BYTES)
    cluster.create(topic, PLACES, **MIN_ISR)
    requests = [wire.produce_request(topic, data, partition=number) for number in range(len(PLACES))]
    targets = [
        Target(cluster.nodes[PLACES[number][0]].address, topic, requests[number])
        for number in (producer % len(PLACES) for producer in range(PRODUCERS))
    ]
    before = cluster.cpu_seconds()
    seconds = produce_together(targets, count, LARGE_WINDOW)
    cpu = sum(spent(cluster, before).values())
    cluster.delete(topic)
    return {"records_per_second": count * PRODUCERS / seconds, "cpu_seconds": cpu}


def follow(megabytes: int, cluster: BrokerCluster) -> Sample:
    """Fill a topic on broker 1 alone, then have it on all three."""
    topic, data = new_topic(), batch(10, FOLLOW_VALUE_BYTES)
    cluster.create(topic, [[1]] * len(NODES))
    count = max(1, megabytes * 1_000_000 // len(data) // len(NODES))
    with Client(cluster.nodes[1].address) as client:
        for number in range(len(NODES)):
            request = wire.produce_request(topic, data, partition=number)
            client.produce_pipelined(topic, request, count, window=50, records=10)
    total = count * len(NODES) * len(data) / 1e6 * 2
    before, begun = cluster.cpu_seconds(), time.perf_counter()
    cluster.reassign(topic, [[1, 2, 3]] * len(NODES))
    cluster.wait_until_whole(topic, len(NODES))
    seconds = time.perf_counter() - begun
    cpu = spent(cluster, before)
    cluster.delete(topic)
    return {
        "follower_cpu_seconds_per_megabyte": (cpu[2] + cpu[3]) / total,
        "leader_cpu_seconds_per_megabyte": cpu[1] / total,
        "bytes_per_second": total * 1e6 / seconds,
    }


def failover(cluster: BrokerCluster) -> Sample:
    topic = new_topic()
    cluster.create(topic, [[1, 2, 3]], **MIN_ISR)
    request, layout = wire.produce_request(topic, batch(1, SMALL_VALUE_BYTES)), wire.ProduceResponseLayout.of(topic)

    def confirms(node: int) -> bool:
        with Client(cluster.nodes[node].address) as client:
            answer = client.exchange(request, layout.size)
        return not int.from_bytes(answer[layout.error_code_at :][:2], "big")

    assert confirms(1)
    begun = time.perf_counter()
    cluster.nodes[1].kill()
    survivors = NODES[1:]
    cluster.wait_until(
        lambda client: (leader := client.leader(topic)) in survivors and confirms(leader),
        f"{topic} has another leader",
        survivors,
        check_s=0.002,
    )
    seconds = time.perf_counter() - begun
    cluster.nodes[1].begin()
    cluster.nodes[1].wait_until_served()
    cluster.wait_until_whole(topic, len(NODES))
    cluster.delete(topic)
    return {"seconds": seconds}


def restart(topic: str, cluster: BrokerCluster) -> Sample:
    cluster.stop()
    begun = time.perf_counter()
    cluster.start()
    cluster.wait_until_whole(topic, len(NODES))
    seconds = time.perf_counter() - begun
    cpu = sum(cluster.cpu_seconds().values())
    return {"seconds": seconds, "cpu_seconds": cpu, "resident_bytes": cluster.resident_bytes()}


def memory(idle_s: float, cluster: BrokerCluster) -> Sample:
    cluster.stop()
    cluster.start()
    time.sleep(idle_s)
    return {"resident_bytes": cluster.resident_bytes()}


def in_threads(run: Callable[[int], None], count: int) -> float:
    """Run it with each number at once; seconds until the last has ended. The first failure is raised."""
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            run(number)
        except BaseException as error:  # noqa: BLE001 - it is raised in the caller's thread
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    begun = time.perf_counter()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if failures:
        raise failures[0]
    return time.perf_counter() - begun


class Comparison:
    """Both clusters, and where the results go."""

    def __init__(self, ours: BrokerCluster, kafka: BrokerCluster, options: Namespace, report: Report) -> None:
        self._clusters = ours, kafka
        self._options = options
        self._report = report

    def run(self, jobs: Sequence[str]) -> None:
        for name in jobs:
            getattr(self, f"_{name}")()

    def _measured(self, job: Job, *, warm_ups: int = 1) -> Rounds:
        ours, kafka = ((each.name, partial(job, each)) for each in self._clusters)
        return alternate(ours, kafka, rounds=self._options.rounds, warm_ups=warm_ups)

    def _memory(self) -> None:
        rounds = self._measured(partial(memory, self._options.idle_seconds), warm_ups=0)
        self._add("resident memory of a broker when idle", rounds, "resident_bytes", "MB", 1e6, target=0.4)

    def _large(self) -> None:
        rounds = self._measured(partial(large, self._options.large_requests))
        job = "produce, three replicas, acks=all, 1 MB batches"
        self._add(job, rounds, "bytes_per_second", "MB/s", 1e6, target=1.5, more_is_better=True)
        self._add(f"{job}, CPU of all brokers", rounds, "cpu_seconds_per_megabyte", "ms/MB", 1e-3)

    def _small(self) -> None:
        rounds = self._measured(partial(small, self._options.small_requests))
        job = f"produce, three replicas, acks=all, 1 KB records of {PRODUCERS} producers"
        self._add(job, rounds, "records_per_second", "records/s", 1, target=1.2, more_is_better=True)

    def _follow(self) -> None:
        rounds = self._measured(partial(follow, self._options.follow_megabytes))
        what = "follower_cpu_seconds_per_megabyte"
        self._add("CPU of a follower that fetches, 16 KB batches", rounds, what, "ms/MB", 1e-3, target=0.7)
        what = "leader_cpu_seconds_per_megabyte"
        self._add("CPU of the leader that they fetch from", rounds, what, "ms/MB", 1e-3)
        self._add("followers catch up", rounds, "bytes_per_second", "MB/s", 1e6, more_is_better=True)

    def _failover(self) -> None:
        rounds = self._measured(failover)
        self._add(
            f"kill -9 of a leader until a record is confirmed, session of {self._options.session_ms} ms",
            rounds,
            "seconds",
            "s",
            1,
            target=1,
        )

    def _start(self) -> None:
        partitions, topic = self._options.partitions, new_topic()
        for each in self._clusters:
            each.create(topic, [PLACES[number % len(PLACES)] for number in range(partitions)])
        rounds = self._measured(partial(restart, topic))
        job = f"start of three brokers until {partitions:,} partitions are in sync"
        self._add(job, rounds, "seconds", "s", 1, target=1)
        self._add(f"{job}, CPU", rounds, "cpu_seconds", "s", 1)
        self._add(f"resident memory of a broker, {partitions:,} partitions", rounds, "resident_bytes", "MB", 1e6, 0.4)

    def _add(
        self,
        job: str,
        rounds: Rounds,
        what: str,
        unit: str,
        scale: float,
        target: float | None = None,
        *,
        more_is_better: bool = False,
    ) -> None:
        result = Result.of(job, rounds, what, unit=unit, scale=scale, target=target, more_is_better=more_is_better)
        settings = {key: value for key, value in vars(self._options).items() if key not in _NOT_OF_THE_WORK}
        self._report.add(result, rounds, **settings)


JOBS = ("memory", "large", "small", "follow", "failover", "start")


def main(argv: Sequence[str] | None = None) -> None:
    parser = benchmark_parser(__doc__, rounds=5, unmeasured=1)
    parser.add_argument("--jobs", default=",".join(JOBS), help="some of these (default: all)")
    parser.add_argument("--large-requests", type=int, default=150, help="a round and partition (default: 150 of 1 MB)")
    parser.add_argument("--small-requests", type=int, default=600, help="a round and producer (default: 600)")
    parser.add_argument("--follow-megabytes", type=int, default=500, help="a round (default: 500)")
    parser.add_argument("--partitions", type=int, default=1000, help="of the job 'start' (default: 1000)")
    parser.add_argument("--session-ms", type=int, default=3000, help="of brokers at the controller (default: 3000)")
    parser.add_argument("--idle-seconds", type=float, default=10, help="before memory is looked at (default: 10)")
    parser.add_argument("--dir", help="where the brokers keep their data (default: a temporary directory)")
    options = parser.parse_args(argv)
    jobs = options.jobs.split(",")
    unknown = sorted(set(jobs) - set(JOBS))
    if unknown:
        parser.error(f"no jobs: {', '.join(unknown)}; there are {', '.join(JOBS)}")
    report = Report(options.json)
    with tempfile.TemporaryDirectory(prefix="stratalog-cluster-", dir=options.dir) as directory:
        ours = stratalog_cluster(Path(directory) / "stratalog", options.session_ms)
        kafka = kafka_cluster(Path(directory) / "kafka", options.session_ms)
        with ours, kafka:
            Comparison(ours, kafka, options, report).run(jobs)
    report.close()


if __name__ == "__main__":
    main()
