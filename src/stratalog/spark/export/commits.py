"""The commit of an export run, which records its offsets with its rows. Pure.

A commit names the export, the run, the added offsets and, for every partition ever exported, the next offset. It is one
JSON document: a file in the log of a Parquet table (`parquet_table`), the `userMetadata` of a Delta commit, a property
of an Iceberg snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from stratalog.errors import StratalogError
from stratalog.spark.options import TopicPartition, by_topic

#: The format of the document. A reader refuses newer ones.
COMMIT_FORMAT: Final = 1


class CorruptCommitError(StratalogError):
    """The record of a table's exports is unreadable."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a Parquet table: its path below the table, with '/', its size and the records in it."""

    path: str
    size: int
    records: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit of one run. `version` counts from 0; `next_offsets` has every partition that was ever exported.

    `schema` (Spark's JSON) describes the rows with the columns of `partition_by`. `decoded` says how values were
    decoded, so that an inferred schema stays. Only Parquet tables have `files`.
    """

    version: int
    run_id: str
    ranges: Sequence[OffsetRange]
    next_offsets: Mapping[TopicPartition, int]
    schema: str
    partition_by: Sequence[str]
    decoded: str | None = None
    files: Sequence[DataFile] = field(default_factory=tuple)

    def to_json(self) -> str:
        document = {
            "format": COMMIT_FORMAT,
            "version": self.version,
            "run": self.run_id,
            "ranges": [[each.topic, each.partition, each.start, each.end] for each in self.ranges],
            "next": by_topic(self.next_offsets),
            "schema": self.schema,
            "partition_by": list(self.partition_by),
            "decoded": self.decoded,
            "files": [[each.path, each.size, each.records] for each in self.files],
        }
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str | bytes, where: str) -> Commit:
        """Parse a document. A CorruptCommitError names `where`."""
        try:
            document: dict[str, Any] = json.loads(text)
            if document["format"] != COMMIT_FORMAT:
                raise CorruptCommitError(
                    f"{where} has format {document['format']}, this version reads {COMMIT_FORMAT}; upgrade stratalog"
                )
            return cls(
                version=int(document["version"]),
                run_id=str(document["run"]),
                ranges=tuple(OffsetRange(str(t), int(p), int(a), int(b)) for t, p, a, b in document["ranges"]),
                next_offsets={
                    (topic, int(partition)): int(offset)
                    for topic, by_partition in document["next"].items()
                    for partition, offset in by_partition.items()
                },
                schema=str(document["schema"]),
                partition_by=tuple(document["partition_by"]),
                decoded=document["decoded"],
                files=tuple(DataFile(str(path), int(size), int(n)) for path, size, n in document["files"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptCommitError(f"{where} is not a commit of an export: {error}") from error


def next_commit(
    last: Commit | None,
    run_id: str,
    ranges: Sequence[OffsetRange],
    schema: str,
    partition_by: Sequence[str],
    decoded: str | None,
) -> Commit:
    """Return the commit after `last` that adds these ranges, without files.

    Every range begins where its partition stopped.
    """
    following = dict(last.next_offsets) if last else {}
    for each in ranges:
        assert following.get(each.key, each.start) <= each.start < each.end, each
        following[each.key] = each.end
    version = last.version + 1 if last else 0
    return Commit(
        version=version,
        run_id=run_id,
        ranges=tuple(ranges),
        next_offsets=following,
        schema=schema,
        partition_by=tuple(partition_by),
        decoded=decoded,
    )
