"""What is in topics: batch sizes, codecs and what others would make of it, keys, time order; per segment and per topic.

    found = stats(spark, paths=["/var/lib/stratalog"], topics={"orders"}, keys=True)
    found.by_topic().print()
    found.what_if().print()

A task a segment. Headers tell most; codecs are tried on a sample of batches, spread over the segment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from stratalog.errors import UsageError
from stratalog.inspect import list_remote_segments
from stratalog.jobs import SILENT, Column, Progress, Report, Unit
from stratalog.log import list_partitions, list_segments
from stratalog.log.format import noted_topic_id
from stratalog.remote.storage import SegmentManifest, open_bucket
from stratalog.spark.executor import SparkExecutor
from stratalog.spark.pipelines.stats_segment import SegmentStats, SegmentTask, measure
from stratalog.spark.planning import choose_topic_ids
from stratalog.util import uuid_to_base64

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Of each segment so much is opened and compressed anew.
SAMPLE_BYTES: Final = 1024 * 1024

_SHARED: Final = (
    Column("batches"),
    Column("records"),
    Column("bytes", Unit.BYTES),
    Column("records_per_batch"),
    Column("bytes_per_batch", Unit.BYTES),
    Column("largest_batch", Unit.BYTES),
    Column("bytes_per_record"),
    Column("codecs"),
    Column("compression_ratio"),
    Column("oldest", Unit.TIME),
    Column("newest", Unit.TIME),
    Column("disorder_ms"),
)


@dataclass(frozen=True, slots=True)
class TopicStats:
    """All segments of directories and bucket, by topic, partition, tier and offset.

    `distinct_keys` by topic is an estimate (HyperLogLog, 5 % off at most in two of three cases); empty if not asked
    for.
    """

    segments: tuple[SegmentStats, ...]
    distinct_keys: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def damaged(self) -> list[SegmentStats]:
        return [each for each in self.segments if each.damage is not None]

    def by_topic(self) -> Report:
        columns = [
            Column("topic"),
            Column("partitions"),
            Column("segments"),
            *_SHARED,
            Column("distinct_keys"),
        ]
        rows = []
        for topic in self._topics():
            own = [each for each in self.segments if each.topic == topic]
            partitions = len({each.partition for each in own})
            keys = self.distinct_keys.get(topic)
            rows.append([topic, partitions, len(own), *_shared(own), keys])
        return Report("Topics", columns, rows, self._totals())

    def by_segment(self) -> Report:
        columns = [
            Column("topic"),
            Column("partition"),
            Column("tier"),
            Column("base_offset"),
            Column("last_offset"),
            *_SHARED,
            Column("damage"),
        ]
        rows = [
            [
                each.topic,
                each.partition,
                each.tier,
                each.base_offset,
                each.last_offset,
                *_shared([each]),
                each.damage,
            ]
            for each in self.segments
        ]
        return Report("Segments", columns, rows, self._totals())

    def what_if(self) -> Report:
        """Each topic's sample with every codec: `ratio` is plain over compressed, `size` what the topic would take."""
        columns = [
            Column("topic"),
            Column("codec"),
            Column("ratio"),
            Column("size", Unit.BYTES),
            Column("size_now", Unit.BYTES),
            Column("compress_mb_per_s"),
            Column("sample", Unit.BYTES),
        ]
        rows = [row for topic in self._topics() for row in self._what_if_of(topic)]
        return Report("Codecs tried on samples", columns, rows, self._totals())

    def _what_if_of(self, topic: str) -> list[list[Any]]:
        own = [each for each in self.segments if each.topic == topic and each.sample_batches]
        plain = sum(each.sample_plain_bytes for each in own)
        stored, headers = sum(each.sample_bytes for each in own), sum(each.sample_headers for each in own)
        now = sum(each.size for each in self.segments if each.topic == topic)
        rows: list[list[Any]] = []
        for codec in sorted({name for each in own for name in each.trials}):
            packed = sum(each.trials[codec].bytes for each in own)
            seconds = sum(each.trials[codec].seconds for each in own)
            speed = None if codec == "none" or not seconds else round(plain / seconds / 1e6, 1)
            rows.append(
                [
                    topic,
                    codec,
                    round(plain / packed, 3) if packed else None,
                    now * (packed + headers) // stored,
                    now,
                    speed,
                    plain,
                ]
            )
        return rows

    def _topics(self) -> list[str]:
        return sorted({each.topic for each in self.segments})

    def _totals(self) -> dict[str, Any]:
        return {
            "segments": len(self.segments),
            "records": sum(each.records for each in self.segments),
            "total_bytes": sum(each.size for each in self.segments),
            "damaged_segments": len(self.damaged),
        }


def _shared(own: Sequence[SegmentStats]) -> list[Any]:
    batches, records = sum(each.batches for each in own), sum(each.records for each in own)
    data_batches = batches - sum(each.control_batches for each in own)
    size = sum(each.size for each in own)
    codecs: dict[str, int] = {}
    for each in own:
        for name, stored in each.codec_bytes.items():
            codecs[name] = codecs.get(name, 0) + stored
    sampled = sum(each.sample_bytes - each.sample_headers for each in own)
    plain = sum(each.sample_plain_bytes for each in own)
    return [
        batches,
        records,
        size,
        round(records / data_batches, 1) if data_batches else None,
        size // batches if batches else None,
        max((each.batch_bytes_max for each in own), default=0),
        round(size / records, 1) if records else None,
        " ".join(f"{name.lower()}:{round(100 * stored / size)}%" for name, stored in sorted(codecs.items())),
        round(plain / sampled, 3) if sampled else None,
        min((each.oldest_ms for each in own if each.oldest_ms >= 0), default=None),
        max((each.newest_ms for each in own if each.newest_ms >= 0), default=None),
        max((each.disorder_ms for each in own), default=0),
    ]


def stats(
    spark: SparkSession,
    *,
    paths: Sequence[str | Path] = (),
    remote: str | None = None,
    remote_options: Mapping[str, str] | None = None,
    topics: Collection[str] | None = None,
    topic_ids: Collection[UUID] = (),
    keys: bool = False,
    sample_bytes: int = SAMPLE_BYTES,
    progress: Progress = SILENT,
) -> TopicStats:
    """Look at every segment in `paths` and `remote` (`topics` None: of all topics); records in both tiers count twice.

    `topic_ids` says which are meant where several topics have one name. `keys` counts distinct keys too, which reads
    all keys. UsageError when there is nothing to look at.
    """
    if not paths and remote is None:
        raise UsageError("nothing to look at: give paths, a remote URL, or both")
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
        for (topic, number, directory), noted in directories
        if noted is None or noted == meant[topic]
        for found in [list_segments(directory)]
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
    measured = SparkExecutor(spark).map(
        measure, tasks, title="measuring segments", progress=progress, cost=lambda task: task.size
    )
    found = list(measured)
    if not found:
        raise UsageError(f"no segments {'of these topics ' if topics else ''}in what was given")
    found.sort(key=lambda each: (each.topic, each.partition, each.tier, each.base_offset))
    names = sorted({each.topic for each in found})
    counted = _distinct_keys(spark, names, topic_ids, paths, remote, options) if keys else {}
    return TopicStats(tuple(found), counted)


def _meant(
    manifests: Sequence[SegmentManifest], local: Mapping[tuple[str, UUID], Path], asked: Collection[UUID]
) -> dict[str, UUID]:
    """Return the one topic id of each topic, as a read chooses it. UsageError where several could be meant."""
    absent = set(asked) - {topic_id for _, topic_id in local} - {each.topic_id for each in manifests}
    if absent:
        raise UsageError(f"no topic has the id {', '.join(sorted(map(uuid_to_base64, absent)))}")
    noted: dict[str, dict[UUID, str]] = {}
    for (topic, topic_id), path in local.items():
        noted.setdefault(topic, {})[topic_id] = str(path)
    return choose_topic_ids(manifests, noted, asked)


def _distinct_keys(
    spark: SparkSession,
    topics: Sequence[str],
    topic_ids: Collection[UUID],
    paths: Sequence[str | Path],
    remote: str | None,
    options: Mapping[str, str],
) -> dict[str, int]:
    from pyspark.sql import functions as F

    from stratalog.spark.pipelines.read import source_options

    reader = (
        spark.read.format("stratalog")
        .options(**source_options(paths=paths, remote=remote, remote_options=options, topics=topics))
        .option("columns", "key,topic")
    )
    if topic_ids:
        reader = reader.option("topicId", ",".join(map(uuid_to_base64, topic_ids)))
    frame = reader.load()
    rows = frame.groupBy("topic").agg(F.approx_count_distinct("key").alias("keys")).collect()
    return {str(row["topic"]): int(row["keys"]) for row in rows}
