"""A call with seven arguments or more names them."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src" / "stratalog"
POSITIONAL_MAX = 6

#: Functions that take any number of values, which have no names.
_ANY_NUMBER = {"add_row", "pack", "pack_into", "debug", "info", "warning", "error", "exception", "log"}

_OFTEN = "made for each request, batch or partition: names double what a tuple costs"
_NATIVE = "a native loop takes its arguments by position"
_MERGE = "its tasks change at the moment"

#: The list only gets shorter.
BY_POSITION = {
    "broker/fetch/fetch_frames.py": _OFTEN,
    "broker/fetch/fetching.py": _OFTEN,
    "log/append/appender.py": _OFTEN,
    "records/columns_encode.py": _OFTEN,
    "remote/metadata/serde_fast.py": _OFTEN,
    "log/cleaner/filter_kernel.py": _NATIVE,
    "log/index/index_search.py": _NATIVE,
    "log/resumption.py": _NATIVE,
    "records/native/columns.py": _NATIVE,
    "records/native/dtype.py": _NATIVE,
    "records/native/encode.py": _NATIVE,
    "jobs/fsck/run.py": _MERGE,
}


def long_calls(code: str) -> list[int]:
    """The lines of calls with more positional arguments than `POSITIONAL_MAX`."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call)
        and sum(not isinstance(each, ast.Starred) for each in node.args) > POSITIONAL_MAX
        and ast.unparse(node.func).rpartition(".")[2] not in _ANY_NUMBER
    ]


def test_a_call_with_many_arguments_names_them() -> None:
    names = {path.relative_to(SOURCES).as_posix(): path for path in sorted(SOURCES.rglob("*.py"))}
    found = {name: lines for name, path in names.items() if (lines := long_calls(path.read_text()))}
    assert {n: lines for n, lines in found.items() if n not in BY_POSITION} == {}
    assert sorted(set(BY_POSITION) - set(found)) == [], "exceptions that are no longer needed"


def test_a_long_call_is_found() -> None:
    assert long_calls("f(1, 2, 3, 4, 5, 6)\nf(1, 2, 3, 4, 5, 6, 7)\nlog.info(1, 2, 3, 4, 5, 6, 7)") == [2]
