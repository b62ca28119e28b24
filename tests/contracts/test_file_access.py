"""Files are read and written through `util.FileSystem`, so that tests can let a disk fail, tear or fill up.

Other ways to a file (`Path.read_text` and its like, `tempfile`, `shutil`) stand only where the list below says why.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "stratalog"

#: The layer itself, and the file systems for tests.
LAYER = ("util/filesystem.py", "testing/")

_KEYS = "keys for OpenSSL, which reads files only"
_WIDTH = "the width of the terminal"
_SHIPPED = "a file of this package"
_SCRATCH = "scratch files of one job, which nothing relies on after it"

#: Why the others may. The list only gets shorter.
REASONS = {
    "broker/apis/k35_describe_log_dirs.py": "the size and free space of a disk",
    "broker/metadata/store_file.py": "SQLite opens its file itself",
    "broker/security/key_stores.py": _KEYS,
    "broker/server/server.py": "the data directory of a broker that keeps nothing",
    "cli/cluster/dev.py": "a temporary directory for a cluster, and the log of its controller",
    "cli/cluster/kafka_jars.py": "the jars of an installation, and a cache of them",
    "cli/doctor/places.py": "the size and free space of a disk",
    "cli/demo/broker_process.py": "the output of a process",
    "cli/demo/run.py": "the directory of a demonstration",
    "cli/dump/message_schema.py": _SHIPPED,
    "cli/help.py": _WIDTH,
    "cli/produce/command.py": "files of records that the user names",
    "cli/serve.py": "the configuration, before there is a broker",
    "cli/spark/export.py": "an option that names a file",
    "cli/streams.py": "/dev/null in place of a stream that was closed",
    "jobs/audit/rebuild_objects.py": _SCRATCH,
    "jobs/compaction/rewrite.py": _SCRATCH,
    "jobs/executor.py": _SCRATCH,
    "jobs/restore/copy.py": _SCRATCH,
    "jobs/rows.py": _SCRATCH,
    "spark/export/files.py": _SCRATCH,
    "spark/jvm/java.py": "the Java that was found, and a shim beside it",
    "spark/session/doctor.py": "the jars of an installation",
    "spark/session/package.py": "an archive for workers, made by tarfile",
    "spark/session/worker_python.py": "which Python there is",
    "spark/sink/bucket.py": _SCRATCH,
    "util/child_processes.py": "/proc",
    "util/memory_size.py": "limits of the control group",
    "web/app.py": _SHIPPED,
    "web/documentation.py": _SHIPPED,
    "wire/client/transport.py": _KEYS,
}

_MODULES = {"glob", "shutil", "tempfile"}
_METHODS = {"mkdir", "read_bytes", "read_text", "rmdir", "symlink_to", "unlink", "write_bytes", "write_text"}
_FILE_SYSTEMS = {"fs", "_fs", "REAL_FILESYSTEM"}


def ways_around(code: str) -> Iterator[tuple[int, str]]:
    """Line and what stands there, of each way to a file that is not one of a `FileSystem`."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, f"import {each.name}") for each in node.names if each.name in _MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in _MODULES:
            yield node.lineno, f"from {node.module}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of, name = ast.unparse(node.func.value).rpartition(".")[2], node.func.attr
            is_mode = (
                bool(node.args)
                and isinstance(node.args[0], ast.Constant)
                and node.args[0].value in ("r", "w", "rb", "wb")
            )
            if (name in _METHODS or (name == "open" and (of in ("os", "io") or is_mode))) and of not in _FILE_SYSTEMS:
                yield node.lineno, f"{of}.{name}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "open":
            yield node.lineno, "open"


def test_files_are_reached_through_the_file_system() -> None:
    found = {
        name: places
        for path in sorted(SOURCES.rglob("*.py"))
        if not (name := path.relative_to(SOURCES).as_posix()).startswith(LAYER)
        if (places := [f"{line}: {what}" for line, what in ways_around(path.read_text(encoding="utf-8"))])
    }
    assert {name: places for name, places in found.items() if name not in REASONS} == {}
    assert sorted(REASONS.keys() - found.keys()) == [], "exceptions that are no longer needed"


@pytest.mark.parametrize(
    "line",
    [
        "open('x')",
        "Path('x').read_text()",
        "path.open('w')",
        "(folder / 'a').unlink()",
        "os.open('x', 0)",
        "import shutil",
        "from tempfile import TemporaryDirectory",
    ],
)
def test_each_way_around_is_found(line: str) -> None:
    assert list(ways_around(line))


@pytest.mark.parametrize("line", ["fs.read_bytes(path)", "self._fs.unlink(path)", "REAL_FILESYSTEM.open(path)"])
def test_the_file_system_is_none(line: str) -> None:
    assert not list(ways_around(line))
