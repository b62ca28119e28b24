"""Plan the direct load of Parquet files from their footers: columns, types, and tasks.

Only types for which Spark, with the casts of a load, gives exactly the same records are loaded directly. All others
raise `Indirect`, and Spark reads the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from stratalog.spark.ingest.values import Rows, SourceFile
from stratalog.util import REAL_FILESYSTEM, FileSystem

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED: Final = re.compile(r"`([^`]+)`")
#: Words that SQL takes as a value, or may, instead of a column name.
_NO_NAMES: Final = re.compile(r"null|true|false|user|current_\w+|session_user|local\w+", re.IGNORECASE)

#: The errors of pyarrow for files that are damaged or unsupported.
PARQUET_ERRORS: Final = (OSError, ValueError, NotImplementedError)


class Indirect(Exception):
    """The files cannot be loaded directly; the message says why Spark has to read them."""


class ColumnKind(Enum):
    """The kind of a file's column, as far as it matters for a record."""

    TEXT = "text"
    BINARY = "binary"
    INTEGER = "integer"
    #: An integer of 8 or 16 bits.
    SMALL = "small integer"
    #: A point in time, as microseconds or milliseconds since the epoch.
    INSTANT = "instant"
    #: A local time without a zone.
    LOCAL = "local"
    HEADERS = "headers"


#: The kinds that each column of a record can be made from.
_ALLOWED: Final[Mapping[str, frozenset[ColumnKind]]] = {
    "value": frozenset({ColumnKind.TEXT, ColumnKind.BINARY, ColumnKind.INTEGER, ColumnKind.SMALL}),
    "key": frozenset({ColumnKind.TEXT, ColumnKind.BINARY, ColumnKind.INTEGER, ColumnKind.SMALL}),
    "timestamp": frozenset({ColumnKind.INSTANT, ColumnKind.LOCAL, ColumnKind.INTEGER}),
    "headers": frozenset({ColumnKind.HEADERS}),
    "partition": frozenset({ColumnKind.INTEGER, ColumnKind.SMALL}),
}


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of a record, and the column of the file that it is made from."""

    target: str
    name: str
    kind: ColumnKind


@dataclass(frozen=True, slots=True)
class ParquetInput:
    """A file whose footer was read. `groups` has rows and uncompressed bytes of the columns of each row group."""

    path: Path
    size: int
    modified_ms: int
    columns: tuple[FileColumn, ...]
    groups: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Row groups [first, end) of a file."""

    file: ParquetInput
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Adjacent row groups of adjacent files. `cost` is in bytes of files."""

    number: int
    parts: tuple[RowGroups, ...]
    cost: int


def wanted_columns(rows: Rows) -> dict[str, str]:
    """Return the file's column for each column of a record. Raises Indirect for an expression other than a name."""
    found = {}
    for target in _ALLOWED:
        expression = getattr(rows, target)
        if expression is None:
            if target == "value":
                raise Indirect("the value is the whole row")
            continue
        text = expression.strip()
        quoted = _QUOTED.fullmatch(text)
        if quoted is None and (_NAME.fullmatch(text) is None or _NO_NAMES.fullmatch(text) is not None):
            raise Indirect(f"the {target} is more than the name of a column")
        found[target] = text if quoted is None else quoted[1]
    return found


def local_path(path: str) -> Path:
    """Return the local path of a file that Spark lists (`file:/..`). Raises Indirect for another file system."""
    match = re.fullmatch(r"(?:file:(?://)?)?(/.*)", path)
    if match is None:
        raise Indirect(f"{path.split(':', 1)[0]}: is not a local file system")
    return Path(match[1])


def check_directories(path: Path, base: str | None, names: Sequence[str]) -> None:
    """Raise Indirect if Spark would take one of the columns from a directory below `base` (`day=2024-01-01`)."""
    if base is None:
        return
    wanted = {name.lower() for name in names}
    for part in PurePosixPath(path).parent.parts:
        name, sign, _ = part.partition("=")
        if sign and name.lower() in wanted:
            raise Indirect(f"column {name} is the name of a directory")


def read_footer(
    file: SourceFile,
    wanted: Mapping[str, str],
    *,
    case_sensitive: bool,
    fs: FileSystem = REAL_FILESYSTEM,
) -> ParquetInput:
    """Read a footer. Raises Indirect for an unsupported file, or one that cannot be opened or was replaced."""
    path = local_path(file.path)
    try:
        with fs.open(path) as opened:
            size, modified_ms = opened.size(), opened.mtime_ms()
        if (size, modified_ms) != (file.size, file.modified_ms):
            raise Indirect(f"{path} is another file here")
        with open_parquet(path) as parquet_file:
            columns = tuple(
                _column(parquet_file, target, name, case_sensitive=case_sensitive) for target, name in wanted.items()
            )
            groups = tuple(_groups(parquet_file.metadata, columns))
    except PARQUET_ERRORS as error:
        raise Indirect(f"{path} has no footer that could be read: {next(iter(str(error).splitlines()), '')}") from error
    return ParquetInput(path, size, modified_ms, columns, groups)


def open_parquet(path: Path) -> parquet.ParquetFile:
    """Open a file for reading in pieces, so that not all pages of a column are in memory at a time."""
    return parquet.ParquetFile(
        path, buffer_size=1 << 18, pre_buffer=False, memory_map=False, coerce_int96_timestamp_unit="us"
    )


def read_tasks(files: Sequence[ParquetInput], count_min: int, size_max: int) -> list[ReadTask]:
    """Cut the files, in order, at row groups, into at least `count_min` tasks of even size.

    There are fewer if there are fewer row groups. No task is much larger than `size_max`.
    """
    total = sum(size for file in files for _, size in file.groups)
    share = max(min(-(-total // count_min), size_max), 1)
    tasks: list[ReadTask] = []
    parts: list[RowGroups] = []
    cost = size = done = 0

    def end_task() -> None:
        nonlocal cost, size, parts
        tasks.append(ReadTask(len(tasks), tuple(parts), cost))
        parts, cost, size = [], 0, 0

    for file in files:
        of_file = sum(group for _, group in file.groups)
        before = 0
        for number, (_, group) in enumerate(file.groups):
            # A task ends before a group whose middle is nearer to the next task.
            if parts and done + group // 2 >= share * (len(tasks) + 1):
                end_task()
            if parts and parts[-1].file is file:
                parts[-1] = RowGroups(file, parts[-1].first, number + 1)
            else:
                parts.append(RowGroups(file, number, number + 1))
            cost += file.size * (before + group) // max(of_file, 1) - file.size * before // max(of_file, 1)
            before += group
            size += group
            done += group
    if parts:
        end_task()
    return tasks


# --- footers ----------------------------------------------------------------------------------------------------------


def _column(file: parquet.ParquetFile, target: str, name: str, *, case_sensitive: bool) -> FileColumn:
    found = [
        each
        for each in file.schema_arrow
        if each.name == name or (not case_sensitive and each.name.lower() == name.lower())
    ]
    if len(found) != 1:
        raise Indirect(f"column {name} {'does not exist' if not found else 'exists twice'}")
    kind = _headers_kind(found[0]) if target == "headers" else _flat_kind(file.schema, found[0])
    if kind not in _ALLOWED[target]:
        raise Indirect(f"column {name} is {found[0].type}, of which Spark makes the {target}")
    return FileColumn(target, found[0].name, kind)


def _headers_kind(field: Any) -> ColumnKind | None:
    kind = field.type
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return None
    found = [(each.name, each.type) for each in kind.value_type]
    return ColumnKind.HEADERS if found == [("key", pa.string()), ("value", pa.binary())] else None


def _flat_kind(schema: Any, field: Any) -> ColumnKind | None:
    """Return the kind of a column from its type in the file, which Spark uses, and the type that Arrow reads."""
    stored = next((each for each in map(schema.column, range(len(schema))) if each.path == field.name), None)
    if stored is None:
        return None
    logical, physical = stored.logical_type, stored.physical_type
    details = str(logical)
    arrow = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if physical == "BYTE_ARRAY":
        if logical.type in ("STRING", "ENUM", "JSON") and _is_text(arrow):
            return ColumnKind.TEXT
        return ColumnKind.BINARY if logical.type == "NONE" and _is_binary(arrow) else None
    if physical == "INT96":
        return ColumnKind.INSTANT if pa.types.is_timestamp(arrow) else None
    if logical.type == "TIMESTAMP" and pa.types.is_timestamp(arrow) and arrow.unit in ("ms", "us"):
        return ColumnKind.INSTANT if "isAdjustedToUTC=true" in details else ColumnKind.LOCAL
    if logical.type in ("NONE", "INT") and pa.types.is_signed_integer(arrow):
        return ColumnKind.INTEGER if arrow.bit_width >= 32 else ColumnKind.SMALL
    return None


def _is_text(kind: Any) -> bool:
    return kind in (pa.string(), pa.large_string())


def _is_binary(kind: Any) -> bool:
    return kind in (pa.binary(), pa.large_binary())


def _groups(metadata: Any, columns: Sequence[FileColumn]) -> Iterator[tuple[int, int]]:
    names = {column.name for column in columns}
    nested = tuple(f"{name}." for name in names)
    paths = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    leaves = [number for number, path in enumerate(paths) if path in names or path.startswith(nested)]
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        yield group.num_rows, sum(group.column(leaf).total_uncompressed_size for leaf in leaves)
