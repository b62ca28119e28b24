"""Forecast retention for all topics of data directories and a bucket, with the current or with trial settings.

One task for each partition reads headers at the ends of segments, or manifests. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from uuid import UUID

from stratalog.errors import UsageError
from stratalog.inspect import DataDirSet, PartitionReader, find_partitions, one_replica
from stratalog.jobs.executor import THREADS, Executor
from stratalog.jobs.progress import SILENT, Progress
from stratalog.jobs.retention.fate import Fate, Rhythm
from stratalog.jobs.retention.remote_survey import KnownOffsets, SurveyedPartition, config_of, survey
from stratalog.jobs.retention.result import PartitionForecast, RetentionForecast
from stratalog.log import list_partitions
from stratalog.log.format import noted_topic_id
from stratalog.remote.api import TopicIdPartition
from stratalog.remote.storage import open_bucket
from stratalog.util import SYSTEM_CLOCK

#: The maximum number of listings. Topics may be deleted or created again between a listing and its tasks.
_LOOKS_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class _Task:
    partition: SurveyedPartition
    #: The id of the topic that the directory was listed for, None if it has none.
    topic_id: UUID | None
    #: The bucket whose segments the task lists itself, if any.
    bucket: tuple[str, dict[str, str]] | None
    identity: TopicIdPartition | None
    properties: dict[str, str] | None
    what_if: dict[str, str]
    now_ms: int
    rhythm: Rhythm

    def __str__(self) -> str:
        return str(self.partition)


def forecast_retention(
    *,
    paths: Sequence[str | Path] = (),
    remote: str | None = None,
    remote_options: Mapping[str, str] | None = None,
    topics: Collection[str] | None = None,
    configs: Mapping[str, Mapping[str, str]] | None = None,
    what_if: Mapping[str, str] | None = None,
    at_ms: int | None = None,
    rhythm: Rhythm | None = None,
    known: Mapping[tuple[str, int], KnownOffsets] | None = None,
    executor: Executor = THREADS,
    progress: Progress = SILENT,
) -> RetentionForecast:
    """Forecast what retention deletes in every partition of `paths` and `remote`, and when, as of `at_ms` (now).

    `configs` has the settings of topics. Others have those in their newest manifest, or Kafka's defaults. The states
    of remote segments come from `__remote_log_metadata` if the paths have it; otherwise a segment with a manifest
    counts as finished. `known` has offsets that a broker reported, by topic and partition.

    A topic that is deleted or created again during the run is listed again, so that two topics of one name are never
    mixed.

    Returns:
        The fate of every segment, by topic and partition.

    Raises:
        UsageError: There is nothing to forecast, or a partition changed during every listing.
        InvalidConfigError: A setting of `configs` or `what_if` is invalid.
        RemoteStorageError, OSError, TaskError: Something cannot be read.

    """
    what_if = dict(what_if or {})
    config_of(what_if)
    now_ms = SYSTEM_CLOCK.now_ms() if at_ms is None else at_ms
    found: list[PartitionForecast] = []
    changed: set[tuple[str, int]] | None = None
    for _ in range(_LOOKS_MAX):
        tasks = [
            _Task(
                partition=replace(partition, known=(known or {}).get((partition.topic, partition.partition))),
                topic_id=_topic_id(partition.directory, identity),
                bucket=bucket,
                identity=identity,
                properties=None
                if configs is None or partition.topic not in configs
                else dict(configs[partition.topic]),
                what_if=what_if,
                now_ms=now_ms,
                rhythm=rhythm or Rhythm(),
            )
            for partition, identity, bucket in _partitions(paths, remote, remote_options or {}, topics)
            if changed is None or (partition.topic, partition.partition) in changed
        ]
        results = list(executor.map(_forecast, tasks, title="forecasting retention", progress=progress))
        changed = {(each.topic, each.partition) for each in results if isinstance(each, _Replaced)}
        found += (
            each
            for each in results
            if isinstance(each, PartitionForecast) and (each.topic, each.partition) not in changed
        )
        if not changed:
            break
    else:
        names = ", ".join(f"{topic}-{number}" for topic, number in sorted(changed or ()))
        raise UsageError(f"{names}: deleted or created again during each of {_LOOKS_MAX} listings")
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
    local: dict[tuple[str, int], list[Path]] = {}
    for directory in directories:
        for topic, number, path in list_partitions(directory):
            if topics is None or topic in topics:
                local.setdefault((topic, number), []).append(path)
    data_dirs = DataDirSet(directories) if directories else None
    if data_dirs is not None and data_dirs.has_metadata:
        for replayed in data_dirs.replay():
            for identity, said in replayed.items():
                key = identity.topic, identity.partition
                if said.segments and (topics is None or identity.topic in topics):
                    found = _take(local, identity)
                    yield SurveyedPartition(*key, found, tuple(said.segments.values())), identity, None
    elif remote is not None:
        for identity in find_partitions(open_bucket(remote, options), topics).partitions:
            key = identity.topic, identity.partition
            yield SurveyedPartition(*key, _take(local, identity)), identity, (remote, dict(options))
    for (topic, number), replicas in sorted(local.items()):
        yield SurveyedPartition(topic, number, one_replica(topic, number, replicas)), None, None


def _take(local: dict[tuple[str, int], list[Path]], identity: TopicIdPartition) -> Path | None:
    """Remove a partition's directories from `local`, and return the one to read.

    Without a directory of this topic id, those of a later topic of the same name stay in `local`.
    """
    key = identity.topic, identity.partition
    found = [each for each in local.get(key, []) if noted_topic_id(each) == identity.topic_id]
    if not found:
        return None
    del local[key]
    return one_replica(*key, found)


def _topic_id(directory: Path | None, identity: TopicIdPartition | None) -> UUID | None:
    """Return the id of the topic that a directory was listed for: that of its remote segments, if any."""
    if directory is None or identity is not None:
        return None if identity is None else identity.topic_id
    return noted_topic_id(directory)


@dataclass(frozen=True, slots=True)
class _Replaced:
    """The listed directory was deleted, or now belongs to another topic."""

    topic: str
    partition: int


def _forecast(task: _Task) -> PartitionForecast | _Replaced:
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
    """Forecast from the files now in the directory of this name. Raises FileNotFoundError."""
    partition, properties = task.partition, task.properties
    if task.bucket is not None and task.identity is not None:
        with PartitionReader(open_bucket(*task.bucket)) as reader:
            complete = reader.read(task.identity).complete
        partition = replace(partition, remote=tuple(m.metadata() for m in complete))
        newest = max(complete, key=lambda m: m.event_timestamp, default=None)
        if properties is None and newest is not None and newest.topic_config is not None:
            properties = {**newest.topic_config, "remote.storage.enable": "true"}
    as_it_is = survey(partition, config_of(properties or {}), task.now_ms, task.rhythm)
    tried: Sequence[Fate] = ()
    if task.what_if:
        tried = survey(partition, config_of(properties or {}, task.what_if), task.now_ms, task.rhythm)
    return PartitionForecast(partition.topic, partition.partition, partition.directory, tuple(as_it_is), tuple(tried))
