"""The layers hold: what may import what, what is loaded lazily, and who may touch the outside world."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "stratalog"

#: Where the outside world may be touched directly; everybody else takes it from util, so that tests can stand in for
#: it.
DOORS = ("util", "testing", "cli", "web")


def test_imports_go_downwards_only() -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


HEAVY = {"numba", "numpy", "pyarrow", "pyspark", "pandas", "obstore", "uvloop", "kio", "confluent_kafka"}


@pytest.mark.parametrize(
    "module",
    ["stratalog", "stratalog.records", "stratalog.records.batch", "stratalog.log.scan", "stratalog.cli.main"],
)
def test_a_light_import_stays_light(module: str) -> None:
    program = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert set(json.loads(loaded)) & HEAVY == set()


def test_the_help_loads_no_command() -> None:
    program = (
        "import json, sys; from stratalog.cli.main import run; status = run(['--help']);"
        "print(json.dumps([status, sorted(sys.modules)]), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    status, loaded = json.loads(result.stderr)
    assert status == 0
    commands = {"stratalog.cli.demo", "stratalog.cli.dump", "stratalog.cli.serve"}
    assert set(loaded) & (HEAVY | commands) == set()


def _python_files() -> Iterator[Path]:
    for path in sorted(SOURCE.rglob("*.py")):
        if path.relative_to(SOURCE).parts[0] not in DOORS:
            yield path


def test_files_clocks_and_chance_come_from_util() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {what}"
        for path in _python_files()
        for line, what in _outside_world(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


FORBIDDEN_CALLS = {
    "time.time",
    "time.time_ns",
    "time.sleep",
    "time.monotonic",
    "os.open",
    "io.open",
    "os.urandom",
    "uuid.uuid4",
    "datetime.now",
    "datetime.utcnow",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
}
FORBIDDEN_MODULES = {"random", "secrets"}


def _outside_world(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name == "open" or name in FORBIDDEN_CALLS:
                yield node.lineno, f"calls {name}"
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, f"imports {a.name}") for a in node.names if a.name in FORBIDDEN_MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in FORBIDDEN_MODULES:
            yield node.lineno, f"imports from {node.module}"


@pytest.mark.parametrize(
    "line", ["open('x')", "time.time()", "import random", "from secrets import token_bytes", "datetime.now()"]
)
def test_the_search_for_the_outside_world_finds_it(line: str) -> None:
    assert list(_outside_world(ast.parse(line)))
