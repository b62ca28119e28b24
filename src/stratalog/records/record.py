"""One record, decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from stratalog.records.batch_format import NO_SEQUENCE

Header = tuple[str, bytes | None]


class RecordLike(Protocol):
    """The fields that `build_batch` needs of a record."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[Header]: ...


@dataclass(frozen=True, slots=True)
class Record:
    """A record with absolute offset and timestamp.

    `timestamp_ms` is milliseconds since the epoch: the append time under LogAppendTime, -1 for none. A null key or
    value is None. `sequence` is -1 unless an idempotent producer wrote the batch.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    sequence: int = NO_SEQUENCE
