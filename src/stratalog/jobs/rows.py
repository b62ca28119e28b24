"""Tables that a job computes in parts and exchanges between steps by key. No table is ever in memory as a whole.

    with executor.rows(3) as numbers:
        words = numbers.map(Count(), "bucket int, count long, word binary").exchange("bucket", 8, ("bucket", "-count"))
        top = list(words.map(Top(), "word binary").values("word"))

A step is a function from the Arrow batches of one part to new batches. It may run twice for a part, so it must be
idempotent. `ThreadRows` keeps exchanged rows in local files, Spark in its shuffle storage.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    import pyarrow as pa

    Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    Part = Callable[[], Iterator[pa.RecordBatch]]


class StepRows(Protocol):
    """A table in parts. Nothing is computed before `values` asks for it."""

    def map(self, step: Step, schema: str) -> Self:
        """Apply `step` to each part. `schema` of the result is `name kind, ...` with kinds int, long and binary."""

    def exchange(self, key: str, parts: int, order: Sequence[str]) -> Self:
        """Put rows with the same `key`, a non-negative number, into one of `parts`, sorted by the numbers in `order`.

        `-name` sorts in descending order.
        """

    def where(self, column: str, equals: int, *, negated: bool = False) -> Self:
        """Return the rows with this number in a column; with `negated`, the others."""

    def kept(self) -> Self:
        """Return the same rows, computed only once even if they are used several times."""

    def values(self, column: str) -> Generator[bytes, None, None]:
        """Compute, and yield the bytes of a column, in no order. Closing the iterator ends the work."""


class _Tasks(Protocol):
    """What a table needs of an executor."""

    def map(self, work: Callable[[Any], Any], tasks: Sequence[Any], *, title: str) -> Generator[Any, None, None]: ...


def arrow_schema(text: str) -> pa.Schema:
    """Return the Arrow schema for the text that `StepRows.map` takes."""
    import pyarrow as pa  # keeps `import stratalog.jobs` cheap

    kinds = {"int": pa.int32(), "long": pa.int64(), "binary": pa.binary()}
    return pa.schema([(name, kinds[kind]) for name, kind in (field.split() for field in text.split(", "))])


class ThreadRows:
    """The `StepRows` of threads. Exchanged and kept parts are files in `directory`.

    In memory are, for each thread, one batch of each step and one sorted part.
    """

    def __init__(self, threads: _Tasks, directory: Path, schema: pa.Schema, parts: Sequence[Part]) -> None:
        self._threads = threads
        self._directory = directory
        self._schema = schema
        self._parts = parts

    @classmethod
    def numbers(cls, threads: _Tasks, directory: Path, count: int) -> Self:
        """Return the numbers below `count`, one a part."""
        schema = arrow_schema("id long")

        def part(number: int) -> Iterator[pa.RecordBatch]:
            yield _batch_of(schema, [[number]])

        return cls(threads, directory, schema, [partial(part, number) for number in range(count)])

    def _with(self, parts: Sequence[Part], schema: pa.Schema | None = None) -> Self:
        return type(self)(self._threads, self._directory, schema or self._schema, parts)

    def map(self, step: Step, schema: str) -> Self:
        def mapped(part: Part) -> Iterator[pa.RecordBatch]:
            return step(part())

        return self._with([partial(mapped, part) for part in self._parts], arrow_schema(schema))

    def exchange(self, key: str, parts: int, order: Sequence[str]) -> Self:
        files = self._files(parts)

        def send(part: Part) -> None:
            for batch in part():
                for number, rows in _by_key(batch, key, parts):
                    files[number].append(rows)

        written = _Once(lambda: self._run(send, "sending rows"))

        def sent(file: _RowsFile) -> Iterator[pa.RecordBatch]:
            written()
            yield from _sorted(file.batches(), order)

        return self._with([partial(sent, file) for file in files])

    def where(self, column: str, equals: int, *, negated: bool = False) -> Self:
        def filtered(part: Part) -> Iterator[pa.RecordBatch]:
            import pyarrow.compute as pc  # keeps `import stratalog.jobs` cheap

            for batch in part():
                wanted = pc.equal(batch[column], equals)
                yield batch.filter(pc.invert(wanted) if negated else wanted)

        return self._with([partial(filtered, part) for part in self._parts])

    def kept(self) -> Self:
        files = self._files(len(self._parts))

        def keep(number: int) -> None:
            for batch in self._parts[number]():
                files[number].append(batch)

        written = _Once(lambda: self._each(keep, range(len(files)), "keeping rows"))

        def read(file: _RowsFile) -> Iterator[pa.RecordBatch]:
            written()
            return file.batches()

        return self._with([partial(read, file) for file in files])

    def values(self, column: str) -> Generator[bytes, None, None]:
        def read(part: Part) -> list[bytes]:
            return [value for batch in part() for value in batch[column].to_pylist()]

        # Not all parts at once: the first that needs an earlier step computes it on these same threads.
        with closing(self._threads.map(read, self._parts, title="reading rows")) as parts:
            for values in parts:
                yield from values

    def _files(self, count: int) -> list[_RowsFile]:
        prefix = f"{len(list(self._directory.iterdir()))}"
        directory = self._directory / prefix
        directory.mkdir()
        return [_RowsFile(directory / str(number), self._schema) for number in range(count)]

    def _run(self, work: Callable[[Part], None], title: str) -> None:
        self._each(work, self._parts, title)

    def _each(self, work: Callable[[Any], None], tasks: Sequence[Any], title: str) -> None:
        for _ in self._threads.map(work, tasks, title=title):
            pass


class _Once:
    """Work that the first caller does while others wait. Every caller gets its error."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._is_done = False
        self._error: BaseException | None = None

    def __call__(self) -> None:
        with self._lock:
            if self._error is not None:
                raise self._error
            if self._is_done:
                return
            try:
                self._work()
            except BaseException as error:
                self._error = error
                raise
            self._is_done = True


class _RowsFile:
    """Arrow batches in a file, each as one message. `append` is thread-safe."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._schema = schema
        self._lock = threading.Lock()

    def append(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            message = batch.serialize()
            # Opened for each batch: there may be more parts than a process has file descriptors.
            with self._lock, self._path.open("ab") as file:
                file.write(message)

    def batches(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # keeps `import stratalog.jobs` cheap

        if not self._path.exists():
            return
        with pa.OSFile(str(self._path)) as file, suppress(EOFError):
            while True:
                yield pa.ipc.read_record_batch(pa.ipc.read_message(file), self._schema)


def _by_key(batch: pa.RecordBatch, key: str, parts: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    import numpy as np  # keeps `import stratalog.jobs` cheap
    import pyarrow as pa

    numbers = batch[key].to_numpy() % parts
    for number in np.unique(numbers).tolist():
        yield number, batch.filter(pa.array(numbers == number))


def _sorted(batches: Iterator[pa.RecordBatch], order: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in order, one in each batch, as views of the file."""
    import pyarrow as pa  # keeps `import stratalog.jobs` cheap
    import pyarrow.compute as pc

    whole = list(batches)
    if not whole:
        return
    names = [name.removeprefix("-") for name in order]
    numbers = pa.Table.from_batches([batch.select(names) for batch in whole])
    directions = ["descending" if name.startswith("-") else "ascending" for name in order]
    sorted_rows = pc.sort_indices(numbers, sort_keys=list(zip(names, directions, strict=True)))
    starts = list(accumulate((batch.num_rows for batch in whole), initial=0))
    for row in sorted_rows.to_pylist():
        number = bisect_right(starts, row) - 1
        yield whole[number].slice(row - starts[number], 1)


def _batch_of(schema: pa.Schema, columns: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    import pyarrow as pa  # keeps `import stratalog.jobs` cheap

    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
