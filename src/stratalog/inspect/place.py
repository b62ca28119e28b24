"""The place of a segment's or index's bytes: in a local file, in the remote store, or with the brokers."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from stratalog.util import File


class PlaceTier(enum.Enum):
    LOCAL = "local"
    REMOTE = "remote"
    #: What neither has: the brokers are asked for it.
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Mark:
    """The header of the last planned batch, at `position` of a `.log`, by which a reader knows the file.

    A name proves nothing: compaction replaces files, and topics are deleted and created again. The header has a CRC of
    its batch's records, and its position depends on everything before it.
    """

    position: int
    header: bytes

    def is_in(self, file: File) -> bool:
        return file.pread(len(self.header), self.position) == self.header


@dataclass(frozen=True, slots=True)
class Place:
    """A local path, a key in the remote store, or a partition of the cluster.

    Keys are never used twice. The name of a local `.log` may be, so that one has a `mark`, which does not count in
    comparisons.
    """

    tier: PlaceTier
    name: str
    mark: Mark | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.name


class PlaceMissingError(Exception):
    """A file or object does not exist, or no longer. Private signal; callers turn it into what it means for them."""


class PlaceChangedError(PlaceMissingError):
    """Another file has the name: what was planned is gone as well."""
