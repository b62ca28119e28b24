"""Find the partitions in a data directory, and load their logs at startup.

A partition directory of no known topic is left unchanged and logged: Kafka in KRaft mode would treat it as stray and
rename it; here it may have been copied in, and no data are removed because metadata are missing. One of an earlier
topic of the same name (by its `partition.metadata`) is renamed to `-stray` as by Kafka. A partition that cannot be
loaded is offline alone; an unreadable directory, with all its partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from stratalog.config import LogConfig
from stratalog.engine.tiering import allowed_config
from stratalog.errors import CorruptCheckpointError
from stratalog.log.format import (
    DELETE_DIR_SUFFIX,
    METADATA_LOG,
    PARTITION_METADATA,
    STRAY_DIR_SUFFIX,
    PartitionMetadataFile,
    parse_future_dir,
    parse_partition_dir,
)
from stratalog.util import FileSystem, random_uuid

logger = logging.getLogger(__name__)

_NAME_SIZE_MAX: Final = 255
#: More gain nothing, and a start must not fail for lack of threads.
THREADS_MAX: Final = 128


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """The metadata of a topic that its logs need."""

    name: str
    topic_id: UUID
    partition_count: int
    config: LogConfig

    def allowed(self) -> TopicSpec:
        """Return the same with the effective configuration of its logs."""
        return replace(self, config=allowed_config(self.name, self.config))


class LoadJob(NamedTuple):
    """A partition directory, its partition, and the topic's metadata."""

    path: Path
    partition: int
    spec: TopicSpec


@dataclass(slots=True)
class DirectoryContent:
    jobs: list[LoadJob] = field(default_factory=list)
    #: Of no known topic, left unchanged.
    unknown: list[Path] = field(default_factory=list)
    #: Of an earlier topic of the same name, renamed.
    set_aside: list[Path] = field(default_factory=list)
    #: Being deleted.
    condemned: list[Path] = field(default_factory=list)
    #: Copies of moving partitions, with their sources.
    futures: list[tuple[Path, tuple[str, int]]] = field(default_factory=list)


def survey(directory: Path, topics: Mapping[str, TopicSpec], fs: FileSystem) -> DirectoryContent:
    """Classify the content of a data directory; see the module. Raises OSError."""
    content = DirectoryContent()
    for name in fs.list_dir(directory):
        path = directory / name
        if not fs.is_dir(path):
            continue
        if name.endswith(DELETE_DIR_SUFFIX):
            content.condemned.append(path)
            continue
        copied = parse_future_dir(name)
        if copied is not None:
            if copied[0] in topics:
                content.futures.append((path, copied))
            else:
                content.unknown.append(path)
            continue
        parsed = parse_partition_dir(name)
        if parsed is None:
            continue
        spec = topics.get(parsed[0])
        if spec is None or parsed[1] >= spec.partition_count:
            content.unknown.append(path)
        elif (aside := make_room(path, spec, fs)) is not None:
            content.set_aside.append(aside)
        else:
            content.jobs.append(LoadJob(path, parsed[1], spec))
    return content


def is_copy_of(path: Path, spec: TopicSpec, fs: FileSystem) -> bool:
    """Return whether an unfinished copy certainly is of this topic, and not of an earlier one of its name."""
    try:
        return PartitionMetadataFile(path / PARTITION_METADATA, fs).read() == spec.topic_id
    except CorruptCheckpointError:
        return False


def partitions_in(directory: Path, fs: FileSystem) -> list[Path]:
    """Return the partition directories in a data directory, of known topics or not. Raises OSError.

    Excludes KRaft's own log, which never counts as cleanly stopped.
    """
    return [
        directory / name
        for name in fs.list_dir(directory)
        if parse_partition_dir(name) is not None and name != METADATA_LOG and fs.is_dir(directory / name)
    ]


def make_room(path: Path, spec: TopicSpec, fs: FileSystem) -> Path | None:
    """Rename a partition directory of another topic of the same name. Return its new path. Raises OSError."""
    if not _is_of_another_topic(path, spec, fs):
        return None
    aside = marked_path(path, STRAY_DIR_SUFFIX)
    fs.rename(path, aside)
    fs.sync_dir(path.parent)
    return aside


def marked_path(path: Path, suffix: str) -> Path:
    """Return the name of a partition directory that is being deleted: `<topic>-<partition>.<uuid><suffix>`.

    A name has at most 255 characters, so the end of a long topic name is omitted.
    """
    topic, _, partition = path.name.rpartition("-")
    end = f"-{partition}.{random_uuid().hex}{suffix}"
    return path.with_name(topic[: _NAME_SIZE_MAX - len(end)] + end)


def _is_of_another_topic(path: Path, spec: TopicSpec, fs: FileSystem) -> bool:
    try:
        topic_id = PartitionMetadataFile(path / PARTITION_METADATA, fs).read()
    except CorruptCheckpointError:
        return False  # opening the log reports and rewrites the file
    return topic_id is not None and topic_id != spec.topic_id


def load_side_by_side(jobs: Mapping[Path, Sequence[LoadJob]], load: Callable[[LoadJob], None], *, threads: int) -> None:
    """Run `load` for the jobs of every directory, on `threads` threads for each (`THREADS_MAX` at most)."""
    if sum(map(len, jobs.values())) < 2:
        for job in (job for of_directory in jobs.values() for job in of_directory):
            load(job)
        return
    pools = []
    try:
        waiting = []
        for path, of_directory in jobs.items():
            pool = ThreadPoolExecutor(min(threads, THREADS_MAX), thread_name_prefix=f"log-recovery-{path}")
            pools.append(pool)
            waiting += [pool.submit(load, job) for job in of_directory]
        for done in waiting:
            done.result()
    finally:
        for pool in pools:
            pool.shutdown(cancel_futures=True)


def report_strays(unknown: Iterable[Path], set_aside: Iterable[Path]) -> None:
    """Log one line for each directory that is not served."""
    for path in unknown:
        logger.warning("%s belongs to no topic of this cluster; it is left unchanged", path)
    for path in set_aside:
        logger.warning("%s belongs to an earlier topic of the same name; it was set aside under this name", path)
