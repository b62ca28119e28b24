"""Prints records of a reader in pieces, so that a slow output does not block the reader."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, BinaryIO, Protocol

from stratalog.cli.threads import call_beside
from stratalog.errors import StratalogError


class RecordSource(Protocol):
    """The source of the records."""

    def read(self) -> AsyncGenerator[Sequence[Any], None]:
        """Yield records of one partition at a time, in order."""

    async def done(self, records: Sequence[Any]) -> None:
        """Record that these records were printed."""


async def print_records(
    source: RecordSource,
    output: BinaryIO,
    write: Callable[[Any], bytes],
    passes: Callable[[Any], bool] | None,
    count: int | None,
    decode: Callable[[Any], Any] | None = None,
) -> None:
    """Print matching records to `output`, at most `count`, as formatted by `decode`.

    Raises BrokenPipeError when the output is closed, and what `decode` raises, after the records before that.
    """
    left = count
    if left == 0:
        return
    async with aclosing(source.read()) as pieces:
        async for piece in pieces:
            failure: StratalogError | None = None
            if decode is not None:
                piece, failure = _decoded(decode, piece)
            seen = piece
            chosen = piece if passes is None else [each for each in piece if passes(each)]
            if left is not None and len(chosen) >= left:
                chosen = chosen[:left]
                seen = [each for each in piece if each.offset <= chosen[-1].offset]
            if chosen:
                await call_beside(_print, output, b"".join(map(write, chosen)))
            await source.done(seen)
            if left is not None:
                left -= len(chosen)
                if not left:
                    return
            if failure is not None:
                raise failure


def _decoded(decode: Callable[[Any], Any], records: Sequence[Any]) -> tuple[list[Any], StratalogError | None]:
    """Return the records up to the first that cannot be decoded, and its error."""
    found: list[Any] = []
    for record in records:
        try:
            found.append(decode(record))
        except StratalogError as error:
            return found, error
    return found, None


def _print(output: BinaryIO, data: bytes) -> None:
    output.write(data)
    output.flush()
