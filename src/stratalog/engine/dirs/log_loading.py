"""The partitions that lie in a data directory: which of them are whose, and how they become logs at a start.

A partition directory that the topics do not know is left as it is and named: Kafka in KRaft mode would call it stray
and rename it; here it may be one that was copied in, and no data goes because metadata is missing. One of an
earlier topic of the same name (its `partition.metadata` says so) has to make room, and is renamed to `-stray` as Kafka
does. A partition that cannot be loaded is offline alone; a directory that cannot be read, with all that is in it.
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
#: More gain nothing, and a start must not fail for want of threads.
THREADS_MAX: Final = 128


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What the cluster's metadata says of a topic, as far as its logs need it."""

    name: str
    topic_id: UUID
    partition_count: int
    config: LogConfig

    def allowed(self) -> TopicSpec:
        """Return the same with the configuration that its logs get."""
        return replace(self, config=allowed_config(self.name, self.config))


class LoadJob(NamedTuple):
    """A partition directory, the partition that its name says, and the topic's metadata."""

    path: Path
    partition: int
    spec: TopicSpec


@dataclass(slots=True)
class DirectoryContent:
    jobs: list[LoadJob] = field(default_factory=list)
    #: Of no topic that is known, left as they are.
    unknown: list[Path] = field(default_factory=list)
    #: Of an earlier topic of the same name, by their new names.
    set_aside: list[Path] = field(default_factory=list)
    #: On the way to be deleted.
    condemned: list[Path] = field(default_factory=list)
    #: Copies of partitions that move, with what they are copies of.
    futures: list[tuple[Path, tuple[str, int]]] = field(default_factory=list)


def survey(directory: Path, topics: Mapping[str, TopicSpec], fs: FileSystem) -> DirectoryContent:
    """Sort out what is in a data directory; see the module. Raises OSError."""
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


def partitions_in(directory: Path, fs: FileSystem) -> list[Path]:
    """Return the partition directories in a data directory, of known topics or not. Raises OSError.

    Not that of KRaft's own log, which is never taken to have been left cleanly.
    """
    return [
        directory / name
        for name in fs.list_dir(directory)
        if parse_partition_dir(name) is not None and name != METADATA_LOG and fs.is_dir(directory / name)
    ]


def make_room(path: Path, spec: TopicSpec, fs: FileSystem) -> Path | None:
    """Set a partition directory aside if it is of another topic of the same name; where it is then. Raises OSError."""
    if not _is_of_another_topic(path, spec, fs):
        return None
    aside = marked_path(path, STRAY_DIR_SUFFIX)
    fs.rename(path, aside)
    fs.sync_dir(path.parent)
    return aside


def marked_path(path: Path, suffix: str) -> Path:
    """Return what a partition directory is called while it is on its way out: `<topic>-<partition>.<uuid><suffix>`.

    A name has 255 characters at most, so the end of a long topic's name is left out.
    """
    topic, _, partition = path.name.rpartition("-")
    end = f"-{partition}.{random_uuid().hex}{suffix}"
    return path.with_name(topic[: _NAME_SIZE_MAX - len(end)] + end)


def _is_of_another_topic(path: Path, spec: TopicSpec, fs: FileSystem) -> bool:
    try:
        topic_id = PartitionMetadataFile(path / PARTITION_METADATA, fs).read()
    except CorruptCheckpointError:
        return False  # the log says so when it is opened, and rewrites the file
    return topic_id is not None and topic_id != spec.topic_id


def load_side_by_side(jobs: Mapping[Path, Sequence[LoadJob]], load: Callable[[LoadJob], None], *, threads: int) -> None:
    """Run `load` for the jobs of every directory, on `threads` threads for each of them (`THREADS_MAX` at most)."""
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
    """One line for each directory that is not served."""
    for path in unknown:
        logger.warning("%s belongs to no topic of this cluster; it is left as it is", path)
    for path in set_aside:
        logger.warning("%s belongs to an earlier topic of the same name; it was set aside under this name", path)
