"""Every command line: quick to answer `--help`, the same names for the same things, examples that can be copied."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from stratalog.cli import main as cli
from stratalog.cli.commands import COMMANDS, CommandSpec, GroupSpec, load
from stratalog.cli.help import OLD_SPELLINGS

#: Libraries that take a tenth of a second or more to import. A command loads them when its work begins.
HEAVY = ("asyncio", "kio", "numba", "numpy", "obstore", "pandas", "pyarrow", "pyspark", "starlette", "uvloop")


def leaves(
    specs: tuple[CommandSpec | GroupSpec, ...] = COMMANDS, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], CommandSpec]]:
    for spec in specs:
        if isinstance(spec, GroupSpec):
            yield from leaves(spec.commands, (*path, spec.name))
        else:
            yield (*path, spec.name), spec


LEAVES = list(leaves())
IDS = [" ".join(path) for path, _ in LEAVES]


def help_of(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, path: tuple[str, ...]) -> str:
    monkeypatch.setenv("COLUMNS", "100")
    assert cli.run([*path, "--help"]) == 0
    return capsys.readouterr().out


def test_help_loads_nothing_heavy() -> None:
    script = f"""
import sys
from stratalog.cli.commands import CommandSpec, load
for name, target in {[(name, spec.target) for name, (_, spec) in zip(IDS, LEAVES, strict=True)]!r}:
    load(CommandSpec(name, target, ""))
    heavy = [module for module in {HEAVY!r} if module in sys.modules]
    if heavy:
        sys.exit(f"stratalog {{name}} --help imports {{heavy}}")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("path", "spec"), LEAVES, ids=IDS)
def test_help_shows_usage_and_an_example_that_can_be_copied(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    path: tuple[str, ...],
    spec: CommandSpec,
) -> None:
    text = help_of(capsys, monkeypatch, path)
    assert f"Usage:\n  stratalog {' '.join(path)}" in text
    examples = text.partition("Examples:\n")[2].partition("\n\n")[0]
    assert f"  stratalog {' '.join(path)}" in examples
    assert [line for line in text.splitlines() if len(line) > 100] == []


@pytest.mark.parametrize(("path", "spec"), LEAVES, ids=IDS)
def test_flags_show_no_value_and_old_spellings_are_not_shown(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    path: tuple[str, ...],
    spec: CommandSpec,
) -> None:
    text = help_of(capsys, monkeypatch, path)
    assert "<bool>" not in text
    assert re.search(r"--help {2,}Show this message", text)
    shown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))
    assert shown & OLD_SPELLINGS == set()
    if "--json" in shown:
        assert re.search(r"--json +Print (one JSON document|JSON lines, one object per\n? *line)\.", text)


@pytest.mark.parametrize(("path", "spec"), LEAVES, ids=IDS)
def test_the_summary_in_the_listing_is_an_imperative_line(path: tuple[str, ...], spec: CommandSpec) -> None:
    assert re.fullmatch(r"[A-Z][a-z]+ .*\.", spec.summary)
    assert len(spec.summary) <= 80


#: What opens a connection to a broker, as commands import it.
CONNECTS = re.compile(
    r"stratalog\.wire\.client\.(Cluster|Connection|ConnectionOptions)$|aiokafka(\.|$)"
    r"|stratalog\.cli\.spark\.options\.with_login$"  # Spark does
)
#: Commands that import what connects, and talk to no broker of others.
WITHOUT_LOGIN = {
    "demo": "starts its own broker",
    "cluster dev": "starts its own brokers",
    "completion": "prints a script for a shell",
    "spark retention": "reads settings from the data directory, by a module that can read them from a broker too",
}


@cache
def imported(module: str) -> frozenset[str]:
    """Return all that a module of the command line imports, at its top or within functions, with names."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    found: set[str] = set()
    for node in ast.walk(ast.parse(Path(spec.origin).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return frozenset(found)


def reached(module: str) -> set[str]:
    """Return what a module and all modules of the command line below it import."""
    found: set[str] = set()
    left = [module]
    seen: set[str] = set()
    while left:
        each = left.pop()
        if each in seen:
            continue
        seen.add(each)
        found |= imported(each)
        left += [name for name in imported(each) if is_module_of_commands(name)]
    return found


@cache
def is_module_of_commands(name: str) -> bool:
    if not name.startswith("stratalog.cli."):
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a name within a module
        return False


@pytest.mark.parametrize(("path", "spec"), LEAVES, ids=IDS)
def test_what_talks_to_a_broker_can_say_who_it_is(path: tuple[str, ...], spec: CommandSpec) -> None:
    options = {option: each for each in load(spec).params for option in each.opts}
    names = reached(importlib.util.resolve_name(spec.target.partition(":")[0], "stratalog.cli"))
    connects = any(CONNECTS.match(name) for name in names) or not {"--bootstrap-server", "--kafka"}.isdisjoint(options)
    if " ".join(path) in WITHOUT_LOGIN:
        assert "--bootstrap-server" not in options
        return
    if connects:
        assert "--command-config" in options
        assert options["--command-config"].envvar == "STRATALOG_COMMAND_CONFIG"
    else:
        assert "--command-config" not in options
