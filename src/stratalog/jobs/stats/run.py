"""Statistics of topics: batch sizes, codecs and the effect of others, time order; per segment and per topic.

    found = measure_topics(paths=["/var/lib/stratalog"], topics={"orders"})
    found.by_topic().print()
    found.what_if().print()

One task for each segment. Headers give most figures; codecs are tried on a sample of batches, spread over the segment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from stratalog.errors import UsageError
from stratalog.inspect import choose_topic_ids, list_remote_segments, one_replica
from stratalog.jobs.executor import THREADS, Executor
from stratalog.jobs.progress import SILENT, Progress
from stratalog.jobs.stats.result import TopicStats
from stratalog.jobs.stats.work import SegmentTask, measure
from stratalog.log import list_partitions, list_segments
from stratalog.log.format import noted_topic_id
from stratalog.remote.storage import SegmentManifest, open_bucket
from stratalog.util import uuid_to_base64

#: Bytes of each segment that are decompressed and compressed again.
SAMPLE_BYTES: Final = 1024 * 1024


def measure_topics(
    *,
    paths: Sequence[str | Path] = (),
    remote: str | None = None,
    remote_options: Mapping[str, str] | None = None,
    topics: Collection[str] | None = None,
    topic_ids: Collection[UUID] = (),
    sample_bytes: int = SAMPLE_BYTES,
    executor: Executor = THREADS,
    progress: Progress = SILENT,
) -> TopicStats:
    """Measure every segment of `topics` (None for all) in `paths` and `remote`. Records in both tiers count twice.

    If several brokers' directories hold a partition, one replica is measured. `topic_ids` chooses between topics of
    one name. Distinct keys are not counted; `stratalog.spark.pipelines.stats` does that. Raises UsageError if there is
    nothing to measure.
    """
    if not paths and remote is None:
        raise UsageError("nothing to measure: give paths, a remote URL, or both")
    options = dict(remote_options or {})
    directories = [
        (each, noted_topic_id(each.path))
        for path in paths
        for each in list_partitions(path)
        if topics is None or each.topic in topics
    ]
    manifests = [] if remote is None else list_remote_segments(open_bucket(remote, options).inner, topics)
    local = {(each.topic, noted): each.path for each, noted in directories if noted is not None}
    meant = _meant(manifests, local, topic_ids)
    replicas: dict[tuple[str, int], list[Path]] = {}
    for (topic, number, path), noted in directories:
        if noted is None or noted == meant[topic]:
            replicas.setdefault((topic, number), []).append(path)
    tasks = [
        SegmentTask(
            topic=topic,
            partition=number,
            base_offset=each.base_offset,
            size=each.size,
            key=str(each.log),
            url=None,
            options={},
            sample_bytes=sample_bytes,
            is_sealed=each is not found[-1],
        )
        for (topic, number), of_partition in replicas.items()
        for found in [list_segments(one_replica(topic, number, of_partition))]
        for each in found
    ]
    if remote is not None:
        tasks += [
            SegmentTask(
                topic=m.topic,
                partition=m.partition,
                base_offset=m.base_offset,
                size=m.segment_size_in_bytes,
                key=m.key(),
                url=remote,
                options=options,
                sample_bytes=sample_bytes,
            )
            for m in manifests
            if m.topic_id == meant[m.topic]
        ]
    measured = executor.map(measure, tasks, title="measuring segments", progress=progress, cost=lambda task: task.size)
    segments = sorted(measured, key=lambda each: (each.topic, each.partition, each.tier, each.base_offset))
    if not segments:
        raise UsageError(f"no segments {'of these topics ' if topics else ''}in what was given")
    return TopicStats(tuple(segments))


def _meant(
    manifests: Sequence[SegmentManifest], local: Mapping[tuple[str, UUID], Path], asked: Collection[UUID]
) -> dict[str, UUID]:
    """Return the topic id of each topic, chosen as for a read. Raises UsageError if several are possible."""
    absent = set(asked) - {topic_id for _, topic_id in local} - {each.topic_id for each in manifests}
    if absent:
        raise UsageError(f"no topic has the id {', '.join(sorted(map(uuid_to_base64, absent)))}")
    noted: dict[str, dict[UUID, str]] = {}
    for (topic, topic_id), path in local.items():
        noted.setdefault(topic, {})[topic_id] = str(path)
    return choose_topic_ids(manifests, noted, asked)
