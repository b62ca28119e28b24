"""No file is mapped into memory: what a map cannot show ends the process by SIGBUS, where a read is an error.

A full tmpfs, a bad sector and a file that somebody else cuts are all of that kind.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"
#: Modules that may name maps, each with its reason. None maps a file.
EXCEPTIONS: dict[str, str] = {
    "stratalog/broker/server/request_memory.py": "memory without a file, which goes back to the system at once",
}
_NAMES = {"mmap", "memmap", "memory_map", "mmap_mode", "open_memmap"}


def maps(source: str) -> Iterator[str]:
    """The places where something is named that maps files: of mmap, numpy, pyarrow."""
    for node in ast.walk(ast.parse(source)):
        names: list[str | None] = []
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            names.append(node.module if isinstance(node, ast.ImportFrom) else None)
        elif isinstance(node, ast.Attribute):
            names = [node.attr]
        elif isinstance(node, ast.Call):
            is_off = {id(keyword) for keyword in node.keywords if ast.unparse(keyword.value) in ("False", "None")}
            names = [keyword.arg for keyword in node.keywords if id(keyword) not in is_off]
        for name in names:
            if name in _NAMES:
                yield f"line {getattr(node, 'lineno', '?')}: {name}"


def test_no_module_maps_a_file() -> None:
    found = {
        str(path.relative_to(SOURCES)): places
        for path in sorted(SOURCES.rglob("*.py"))
        if (places := list(maps(path.read_text())))
    }
    assert found.keys() == EXCEPTIONS.keys(), found


@pytest.mark.parametrize(
    "source",
    [
        "import mmap",
        "from mmap import mmap",
        "import numpy as np\nnp.memmap('f')",
        "import pyarrow as pa\npa.memory_map('f')",
        "import pyarrow.parquet as pq\npq.read_table('f', memory_map=True)",
        "import numpy as np\nnp.load('f', mmap_mode='r')",
    ],
)
def test_each_way_to_map_a_file_is_seen(source: str) -> None:
    assert list(maps(source))
