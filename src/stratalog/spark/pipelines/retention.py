"""What retention will delete when, and what it would with other settings, for all topics of data directories and
buckets.

    forecast = forecast_retention(spark, paths=["/var/lib/stratalog"], configs={"orders": {"retention.ms": "86400000"}},
                                  what_if={"retention.ms": "3600000"})
    forecast.by_topic().print()

One task a partition; it reads headers at the ends of segments, or manifests. Nothing is changed. The rules are those of
`jobs.retention`; `stratalog retention explain` tells of one topic at length.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from stratalog.errors import UsageError
from stratalog.inspect import DataDirs, PartitionReader, find_partitions
from stratalog.jobs.retention import Fate, Rhythm, SurveyedPartition, config_of, survey
from stratalog.log import list_partitions
from stratalog.log.format import noted_topic_id
from stratalog.remote.api import TopicIdPartition
from stratalog.remote.storage import open_bucket
from stratalog.spark.pipelines.progress import SILENT, Progress
from stratalog.spark.pipelines.report import Column, Report, Unit
from stratalog.spark.pipelines.runner import run_tasks
from stratalog.util import SYSTEM_CLOCK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DAY_MS: Final = 86_400_000

#: How often is listed again because topics went, or were made again, between a listing and its tasks.
_LOOKS_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class PartitionForecast:
    """The fates of one partition's segments now, and with what is to be tried (empty where nothing is)."""

    topic: str
    partition: int
    fates: tuple[Fate, ...]
    tried: tuple[Fate, ...] = ()

    @property
    def effective(self) -> tuple[Fate, ...]:
        return self.tried or self.fates


@dataclass(frozen=True, slots=True)
class RetentionForecast:
    """All partitions, by topic and number, as of `at_ms`; `what_if` is what was tried."""

    partitions: tuple[PartitionForecast, ...]
    at_ms: int
    what_if: Mapping[str, str] = field(default_factory=dict, hash=False)

    def by_topic(self) -> Report:
        """A line a topic: bytes of both tiers by when they go."""
        columns = [
            Column("topic"),
            Column("partitions"),
            Column("segments"),
            Column("bytes", Unit.BYTES),
            Column("due_now", Unit.BYTES),
            Column("within_a_day", Unit.BYTES),
            Column("within_a_week", Unit.BYTES),
            Column("later", Unit.BYTES),
            Column("not_foreseen", Unit.BYTES),
            Column("next_at", Unit.TIME),
        ]
        if self.what_if:
            columns.append(Column("due_now_as_it_is", Unit.BYTES))
        rows = []
        for topic in sorted({each.topic for each in self.partitions}):
            of_topic = [each for each in self.partitions if each.topic == topic]
            rows.append(self._topic_row(topic, of_topic))
        tried = ", ".join(f"{key}={value}" for key, value in self.what_if.items())
        title = "Retention forecast" + (f" with {tried}" if tried else "")
        return Report(title, columns, rows, self._totals())

    def _topic_row(self, topic: str, of_topic: Sequence[PartitionForecast]) -> list[Any]:
        fates = [fate for each in of_topic for fate in each.effective]
        due = [(fate.due.rule_ms, fate.size_bytes) for fate in fates if fate.due is not None]

        def between(after: float, until: float) -> int:
            return sum(size for at, size in due if after < at - self.at_ms <= until)

        row: list[Any] = [
            topic,
            len(of_topic),
            len(fates),
            sum(fate.size_bytes for fate in fates),
            between(float("-inf"), 0),
            between(0, _DAY_MS),
            between(_DAY_MS, 7 * _DAY_MS),
            between(7 * _DAY_MS, float("inf")),
            sum(fate.size_bytes for fate in fates if fate.due is None),
            min((at for at, _ in due), default=None),
        ]
        if self.what_if:
            row.append(sum(f.size_bytes for each in of_topic for f in each.fates if f.is_due(self.at_ms)))
        return row

    def _totals(self) -> dict[str, Any]:
        fates = [fate for each in self.partitions for fate in each.effective]
        return {
            "partitions": len(self.partitions),
            "segments": len(fates),
            "total_bytes": sum(fate.size_bytes for fate in fates),
            "due_now_bytes": sum(fate.size_bytes for fate in fates if fate.is_due(self.at_ms)),
        }

    def by_segment(self) -> Report:
        """A line a segment and tier, with what keeps it."""
        rows = [
            [
                each.topic,
                each.partition,
                fate.tier.value,
                fate.base_offset,
                fate.end_offset,
                fate.size_bytes,
                fate.largest_timestamp_ms,
                fate.rule,
                None if fate.due is None else fate.due.rule_ms,
                None if fate.due is None else fate.due.deleted_by_ms,
                None if fate.due is None else fate.due.files_gone_by_ms,
                " ".join(hold.value for hold in fate.holds),
                fate.text,
            ]
            for each in self.partitions
            for fate in each.effective
        ]
        return Report("Retention forecast by segment", SEGMENT_COLUMNS, rows, self._totals())

    def to_frame(self, spark: SparkSession) -> DataFrame:
        """`by_segment` as a table; times are milliseconds."""
        schema = (
            "topic string, partition int, tier string, base_offset bigint, end_offset bigint, bytes bigint, "
            "newest_record bigint, rule string, at bigint, deleted_by bigint, files_gone_by bigint, kept_by string, "
            "explanation string"
        )
        return spark.createDataFrame([tuple(row) for row in self.by_segment().rows], schema)


SEGMENT_COLUMNS: Final = (
    Column("topic"),
    Column("partition"),
    Column("tier"),
    Column("base_offset"),
    Column("end_offset"),
    Column("bytes", Unit.BYTES),
    Column("newest_record", Unit.TIME),
    Column("rule"),
    Column("at", Unit.TIME),
    Column("deleted_by", Unit.TIME),
    Column("files_gone_by", Unit.TIME),
    Column("kept_by"),
    Column("explanation"),
)


@dataclass(frozen=True, slots=True)
class _Task:
    partition: SurveyedPartition
    #: Of the topic that the directory was listed for; None where none is noted.
    topic_id: UUID | None
    #: Where the remote segments are to be listed by the task itself.
    bucket: tuple[str, dict[str, str]] | None
    identity: TopicIdPartition | None
    properties: dict[str, str] | None
    what_if: dict[str, str]
    now_ms: int
    rhythm: Rhythm

    def __str__(self) -> str:
        return str(self.partition)


def forecast_retention(
    spark: SparkSession,
    *,
    paths: Sequence[str | Path] = (),
    remote: str | None = None,
    remote_options: Mapping[str, str] | None = None,
    topics: Collection[str] | None = None,
    configs: Mapping[str, Mapping[str, str]] | None = None,
    what_if: Mapping[str, str] | None = None,
    at_ms: int | None = None,
    rhythm: Rhythm | None = None,
    progress: Progress = SILENT,
) -> RetentionForecast:
    """Forecast every partition in `paths` and `remote` (`topics` None: of all topics), as of `at_ms` (now).

    `configs` has the topics' own settings by topic; of a topic that is not in there, those in its newest manifest, else
    Kafka's defaults. States of remote segments are taken from `__remote_log_metadata` where the paths have it, else
    what has a manifest is finished. UsageError when there is nothing; InvalidConfigError for a setting that cannot be.

    What is deleted or made again while this runs is listed again: nothing is told of one topic as of another of its
    name.
    """
    what_if = dict(what_if or {})
    config_of(what_if)
    now_ms = SYSTEM_CLOCK.now_ms() if at_ms is None else at_ms
    found: list[PartitionForecast] = []
    changed: set[tuple[str, int]] | None = None
    for _ in range(_LOOKS_MAX):
        tasks = [
            _Task(
                partition,
                _topic_id(partition.directory, identity),
                bucket,
                identity,
                None if configs is None or partition.topic not in configs else dict(configs[partition.topic]),
                what_if,
                now_ms,
                rhythm or Rhythm(),
            )
            for partition, identity, bucket in _partitions(paths, remote, remote_options or {}, topics)
            if changed is None or (partition.topic, partition.partition) in changed
        ]
        told = list(run_tasks(spark, tasks, _forecast, title="forecasting retention", progress=progress))
        changed = {(each.topic, each.partition) for each in told if isinstance(each, _Replaced)}
        found += (
            each for each in told if isinstance(each, PartitionForecast) and (each.topic, each.partition) not in changed
        )
        if not changed:
            break
    else:
        names = ", ".join(f"{topic}-{number}" for topic, number in sorted(changed or ()))
        raise UsageError(f"{names}: deleted or made again at each of {_LOOKS_MAX} looks")
    if not found:
        raise UsageError(f"no partitions {'of these topics ' if topics else ''}in what was given")
    ordered = sorted(found, key=lambda each: (each.topic, each.partition))
    return RetentionForecast(tuple(ordered), now_ms, what_if)


def _partitions(
    paths: Sequence[str | Path],
    remote: str | None,
    options: Mapping[str, str],
    topics: Collection[str] | None,
) -> Iterator[tuple[SurveyedPartition, TopicIdPartition | None, tuple[str, dict[str, str]] | None]]:
    directories = [Path(path) for path in paths]
    local = {
        (topic, number): path
        for directory in directories
        for topic, number, path in list_partitions(directory)
        if topics is None or topic in topics
    }
    data_dirs = DataDirs(directories) if directories else None
    if data_dirs is not None and data_dirs.has_metadata:
        for replayed in data_dirs.replay():
            for identity, said in replayed.items():
                key = identity.topic, identity.partition
                if said.segments and (topics is None or identity.topic in topics):
                    path = local.get(key)
                    path = local.pop(key) if path is not None and _is_of(path, identity) else None
                    yield (
                        SurveyedPartition(*key, path, tuple(said.segments.values())),
                        identity,
                        None,
                    )
    elif remote is not None:
        for identity in find_partitions(open_bucket(remote, options), topics).partitions:
            key = identity.topic, identity.partition
            path = local.get(key)
            path = local.pop(key) if path is not None and _is_of(path, identity) else None
            yield SurveyedPartition(*key, path), identity, (remote, dict(options))
    for (topic, number), path in sorted(local.items()):
        yield SurveyedPartition(topic, number, path), None, None


def _is_of(directory: Path, identity: TopicIdPartition) -> bool:
    """Whether a directory is of the topic with this id, not of a later one of the same name."""
    return noted_topic_id(directory) == identity.topic_id


def _topic_id(directory: Path | None, identity: TopicIdPartition | None) -> UUID | None:
    """Of the topic that a directory was listed for: where it goes with remote segments, theirs."""
    if directory is None or identity is not None:
        return None if identity is None else identity.topic_id
    return noted_topic_id(directory)


@dataclass(frozen=True, slots=True)
class _Replaced:
    """The directory that was listed is gone, or another topic's by now."""

    topic: str
    partition: int


def _forecast(task: _Task) -> PartitionForecast | _Replaced:
    """On a worker."""
    partition = task.partition
    try:
        found = _forecast_by_name(task)
    except FileNotFoundError:
        return _Replaced(partition.topic, partition.partition)
    directory = partition.directory
    if directory is not None and (not directory.is_dir() or noted_topic_id(directory) != task.topic_id):
        return _Replaced(partition.topic, partition.partition)
    return found


def _forecast_by_name(task: _Task) -> PartitionForecast:
    """From whatever lies in the directory of this name. FileNotFoundError."""
    partition, properties = task.partition, task.properties
    if task.bucket is not None and task.identity is not None:
        with PartitionReader(open_bucket(*task.bucket)) as reader:
            complete = reader.read(task.identity).complete
        partition = SurveyedPartition(
            partition.topic, partition.partition, partition.directory, tuple(m.metadata() for m in complete)
        )
        newest = max(complete, key=lambda m: m.event_timestamp, default=None)
        if properties is None and newest is not None and newest.topic_config is not None:
            properties = {**newest.topic_config, "remote.storage.enable": "true"}
    as_it_is = survey(partition, config_of(properties or {}), task.now_ms, task.rhythm)
    tried: Sequence[Fate] = ()
    if task.what_if:
        tried = survey(partition, config_of(properties or {}, task.what_if), task.now_ms, task.rhythm)
    return PartitionForecast(partition.topic, partition.partition, tuple(as_it_is), tuple(tried))
