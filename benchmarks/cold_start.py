"""Cold start with many remote segments: from the start of the process until every one of them is known.

    python -m benchmarks.cold_start [--segments 100000] [--partitions 500] [--rounds 3] [--json FILE]

Ours begins with the snapshots of the metadata that a clean stop left. The peer is the same broker on the same directory
without them: it replays two events for each segment. Both load the same partitions, serve, and answer for every
partition which remote segments there are; the target of 5 s is for the time that this takes with snapshots. Beside it
the CPU time of one look at the tier status of every partition, as each scrape of the metrics takes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

import stratalog
from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.measure import Sample, alternate
from benchmarks.support.report import Report, Result
from stratalog.broker.metadata.store import MetadataStore
from stratalog.config.broker import BrokerConfig
from stratalog.engine.tiering.metadata_topic_settings import metadata_topic_configs
from stratalog.engine.tiering.tier_status import tier_statuses
from stratalog.jobs.restore.bucket import RestoredTopic, RestorePlan
from stratalog.jobs.restore.files import METADATA_TOPIC
from stratalog.jobs.restore.plan import PartitionRestore
from stratalog.jobs.restore.run import write_restore
from stratalog.log.format.values import EpochEntry
from stratalog.remote.api.interfaces import RemoteLogSegmentId, RemoteLogSegmentMetadata
from stratalog.remote.api.segment_state import RemoteLogSegmentState
from stratalog.remote.api.topic_id_partition import TopicIdPartition
from stratalog.remote.metadata.snapshot import SNAPSHOT_FILE
from stratalog.util.uuids import random_uuid

TARGET_SECONDS = 5.0
METADATA_PARTITIONS = 50
PARTITIONS_PER_TOPIC = 50
RECORDS_IN_SEGMENT = 1_000_000
_TOPIC_CONFIGS = {"remote.storage.enable": "true", "retention.ms": "-1"}


def segment(partition: TopicIdPartition, number: int) -> RemoteLogSegmentMetadata:
    """The `number`th of a partition, finished, 1 GiB."""
    start = number * RECORDS_IN_SEGMENT
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(partition, random_uuid()),
        start_offset=start,
        end_offset=start + RECORDS_IN_SEGMENT - 1,
        max_timestamp_ms=1_700_000_000_000 + number,
        broker_id=1,
        event_timestamp_ms=1_700_000_000_000 + number,
        segment_size_bytes=2**30,
        segment_leader_epochs={0: start},
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        txn_index_empty=True,
    )


def plan_of(segments: int, partitions: int) -> RestorePlan:
    """Topics with their remote segments spread evenly, as a restore would find them."""
    topics, plans = [], []
    for first in range(0, partitions, PARTITIONS_PER_TOPIC):
        count = min(PARTITIONS_PER_TOPIC, partitions - first)
        topic = RestoredTopic(f"topic{first}", random_uuid(), count, _TOPIC_CONFIGS)
        topics.append(topic)
        for number in range(count):
            partition = TopicIdPartition(topic.topic_id, topic.name, number)
            of_partition = segments * (first + number + 1) // partitions - segments * (first + number) // partitions
            end = of_partition * RECORDS_IN_SEGMENT
            remote = tuple(segment(partition, each) for each in range(of_partition))
            plans.append(PartitionRestore(partition, remote, 0, end, (EpochEntry(0, 0),), None))
    return RestorePlan(tuple(topics), tuple(plans), (), (), ())


def register(data_dir: Path, plan: RestorePlan, metadata_topic_id: UUID) -> None:
    store = MetadataStore.open(data_dir)
    config = metadata_topic_configs(BrokerConfig.from_properties({}))
    store.create_topic(METADATA_TOPIC, METADATA_PARTITIONS, config, created_ms=0, topic_id=metadata_topic_id)
    for topic in plan.topics:
        store.create_topic(topic.name, topic.partition_count, topic.configs, created_ms=0, topic_id=topic.topic_id)
    store.close()


def one_start(data_dir: Path, with_snapshots: bool) -> Sample:
    """One process, started and stopped."""
    if not with_snapshots:
        for path in data_dir.glob(f"{METADATA_TOPIC}-*/{SNAPSHOT_FILE}"):
            path.unlink()
    command = [
        sys.executable,
        "-m",
        "benchmarks.cold_start",
        "--serve",
        str(data_dir),
        "--started",
        str(time.time()),
    ]
    answered = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    sample: Sample = json.loads(answered.stdout)
    return sample


def serve(data_dir: Path, started: float) -> None:
    """In the process that is measured: start, ask for everything, tell how long it took, stop cleanly."""
    settings = {
        "remote.log.storage.system.enable": "true",
        "log.initial.task.delay.ms": "600000",
    }
    with stratalog.Broker(data_dir=data_dir, config=settings) as broker:
        ready = time.time() - started
        remote = broker.services.logs.remote
        assert remote is not None
        segments = sum(
            remote.sizes(partition.topic_id_partition).readable_segments
            for partition in broker.services.logs.partitions()
            if partition.topic != METADATA_TOPIC
        )
        known = time.time() - started
        before = time.process_time()
        tier_statuses(broker.services.logs)
        told = time.process_time() - before
    sample = {"ready_seconds": ready, "known_seconds": known, "segments": segments, "status_seconds": told}
    print(json.dumps(sample))


def main(argv: Sequence[str] | None = None) -> None:
    parser = benchmark_parser(__doc__, rounds=3, unmeasured=1)
    parser.add_argument("--segments", type=int, default=100_000, help="remote ones (default: 100000)")
    parser.add_argument("--partitions", type=int, default=500, help="that have them (default: 500)")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.serve is not None:
        serve(options.serve, options.started)
        return
    with tempfile.TemporaryDirectory(prefix="stratalog-cold-start-") as home:
        data_dir = Path(home) / "data"
        plan = plan_of(options.segments, options.partitions)
        write_restore(plan, data_dir, partial(register, data_dir), metadata_partitions=METADATA_PARTITIONS)
        rounds = alternate(
            ("stratalog", partial(one_start, data_dir, True)),
            ("without snapshots", partial(one_start, data_dir, False)),
            rounds=options.rounds,
        )
    report = Report(options.json)
    job = f"cold start with {options.segments} remote segments"
    for what, unit in (("known_seconds", "s until all are known"), ("ready_seconds", "s until it serves")):
        report.add(Result.of(job, rounds, what, unit=unit, more_is_better=False), rounds)
    told = rounds.median("stratalog", "status_seconds")
    print(f"tier status of {options.partitions} partitions: {told * 1000:.1f} ms of CPU", file=sys.stderr)
    seconds = rounds.median("stratalog", "known_seconds")
    missed = "" if seconds < TARGET_SECONDS else ", missed"
    print(
        f"{job}: {seconds:.2f} s until all are known  [target < {TARGET_SECONDS:g} s{missed}]",
        file=sys.stderr,
    )
    report.close()


if __name__ == "__main__":
    main()
