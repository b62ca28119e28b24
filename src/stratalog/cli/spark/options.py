"""The options that Spark jobs share: directories, bucket, and the options of its store."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from stratalog.cli.missing import require_topics
from stratalog.cli.option_groups import OptionGroup
from stratalog.cli.options import DataDirs, Remote, RemoteOptions, Topics, key_values
from stratalog.errors import UsageError
from stratalog.log import list_partitions
from stratalog.log.recovery import hold_all
from stratalog.util import uuid_from_base64


def remote_options(texts: Iterable[str] | None) -> dict[str, str]:
    return key_values("--remote-option", texts)


def topic_ids(texts: Iterable[str] | None) -> frozenset[UUID]:
    """Return the ids. Raises UsageError for an invalid one."""
    found = set()
    for text in texts or ():
        try:
            found.add(uuid_from_base64(text))
        except ValueError as error:
            raise UsageError(f"--topic-id {text}: expected an id as Kafka writes it ({error})") from error
    return frozenset(found)


def remote_url(text: str | None) -> str | None:
    """Return a URL; a directory is one too. Raises UsageError for a directory that does not exist."""
    if text is None:
        return None
    if "://" in text:
        return text
    directory = Path(text).absolute()
    if not directory.is_dir():
        raise UsageError(f"--remote {text}: no such directory")
    return directory.as_uri()


def data_dirs(paths: Iterable[Path] | None) -> list[str]:
    """Absolute paths: workers have other working directories. UsageError for one that does not exist."""
    found = []
    for path in paths or ():
        if not path.is_dir():
            raise UsageError(f"--data-dir {path}: no such directory")
        found.append(str(path.absolute()))
    return found


@dataclass(frozen=True, slots=True)
class InputOptions:
    """What a job reads: data directories, a bucket and the options of its store; `topics` None means all."""

    paths: list[str]
    remote: str | None
    remote_options: dict[str, str]
    topics: set[str] | None

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that all jobs take."""
        return {
            "paths": self.paths,
            "remote": self.remote,
            "remote_options": self.remote_options,
            "topics": self.topics,
        }

    def held(self, *, for_check: bool) -> AbstractContextManager[None]:
        """Keep brokers out of the data directories within the block, and if not `for_check` other jobs too."""
        return hold_all(map(Path, self.paths), for_check=for_check)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInputs(OptionGroup):
    """The options that name the places of a job."""

    data_dir: DataDirs = None
    remote: Remote = None
    topic: Topics = None
    remote_option: RemoteOptions = None

    def places(self) -> InputOptions:
        """Return the places.

        Raises UsageError for no place or a missing directory, NothingFoundError for a missing topic, before Spark
        starts, which takes seconds.
        """
        require_place(self.data_dir, self.remote)
        found = InputOptions(
            data_dirs(self.data_dir),
            remote_url(self.remote),
            remote_options(self.remote_option),
            set(self.topic) if self.topic else None,
        )
        where = ", ".join([*found.paths, *([] if found.remote is None else [found.remote])])
        require_topics(self.topic, lambda: _topics_in(found), where)
        return found


def with_login(command_config: Path | None) -> dict[str, str]:
    """Return the options of the source that a file of client properties stands for; none without a file."""
    if command_config is None:
        return {}
    from stratalog.spark.options import COMMAND_CONFIG, with_client_properties  # --help does without

    return with_client_properties({COMMAND_CONFIG: str(command_config)})


def require_place(paths: Iterable[Path] | None, remote: str | None) -> None:
    if not paths and remote is None:
        raise UsageError("no source given: use --data-dir DIR, --remote URL, or both")


def _topics_in(where: InputOptions) -> set[str]:
    from stratalog.cli.tier import open_store, topics_in  # loads object-store clients

    found = {partition.topic for path in where.paths for partition in list_partitions(path)}
    if where.remote is not None:
        options = [f"{key}={value}" for key, value in where.remote_options.items()]
        found |= topics_in(open_store(where.remote, options))
    return found
