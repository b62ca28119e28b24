"""Each package has a door: other packages import from the package what its `__init__.pyi` lists, and nothing deeper.

`lazy_loader` reads the same stub at run time, so a name in a door costs nothing until somebody imports it.
"""

import ast
import importlib
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "stratalog"

#: Names that equal a module beside them: through a door, the module would shadow them.
SHADOWED = {
    ("stratalog.spark.pipelines.stats", "stats"),
}

#: Packages that are functions too: in the door of the package around them, the name is either.
CALLABLE = {"stratalog.jobs.audit", "stratalog.jobs.fsck"}

#: Packages for users of stratalog: their doors list more than stratalog itself imports.
PUBLIC = {
    "stratalog.jobs",
    "stratalog.spark.export",
    "stratalog.spark.ingest",
    "stratalog.spark.stream",
    "stratalog.wire.client",
}

#: The command line is entered by its `main` alone.
NO_DOOR = {"stratalog", "stratalog.cli"}


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")


MODULES = {_name(path): path for path in SRC.rglob("*.py")}
PACKAGES = {name for name, path in MODULES.items() if path.name == "__init__.py"}
STUBS = {_name(path): path for path in SRC.rglob("__init__.pyi")}


@cache
def _imports(path: Path) -> tuple[tuple[int, str, str], ...]:
    """Return (line, source module, name) of each name that a file imports from stratalog."""
    text = path.read_text()
    if "stratalog" not in text:
        return ()
    return tuple(
        (node.lineno, node.module, alias.name)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("stratalog")
        for alias in node.names
    )


@cache
def _attributes(path: Path) -> tuple[tuple[str, str], ...]:
    """Return (package, name) of each name that a file takes from a package of stratalog that it imports as such."""
    packages = {name: f"{source}.{name}" for _, source, name in _imports(path) if f"{source}.{name}" in PACKAGES}
    if not packages:
        return ()
    return tuple(
        (packages[node.value.id], node.attr)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in packages
    )


@cache
def _users() -> dict[str, set[str]]:
    """Return the files that import each `package.name`, tests and tools included."""
    users = defaultdict(set)
    for folder in ("src", "tests", "benchmarks", "tools"):
        for path in (ROOT / folder).rglob("*.py"):
            names = [*((source, name) for _, source, name in _imports(path)), *_attributes(path)]
            for source, name in names:
                users[f"{source}.{name}"].add(_name(path) if folder == "src" else folder)
    return users


def _is_inside(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


@cache
def _door(package: str) -> dict[str, str]:
    """Return what the stub of `package` lists: each name with its module, empty for a module as such."""
    tree = ast.parse(STUBS[package].read_text())
    return {
        alias.name: node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_other_packages_come_in_through_the_door() -> None:
    wrong = []
    for module, path in MODULES.items():
        for line, source, name in _imports(path):
            home = source.rpartition(".")[0]
            if f"{source}.{name}" in PACKAGES or (source, name) in SHADOWED:
                continue
            if source in PACKAGES:
                listed = source not in STUBS or name in _door(source)
                if not listed and not _is_inside(module, source):
                    wrong.append(f"{path}:{line}: {name} is not in the door of {source}")
            elif home in PACKAGES - NO_DOOR and not _is_inside(module, home):
                wrong.append(f"{path}:{line}: import {name} from {home}, not from {source}")
    assert wrong == []


@pytest.mark.parametrize("package", sorted(STUBS))
def test_a_door_opens_and_is_used(package: str) -> None:
    loaded = importlib.import_module(package)
    door = _door(package)
    assert set(loaded.__all__) == set(door)
    for name, module in door.items():
        assert getattr(loaded, name) is not None, f"{package}.{name} of {module}"
    if package in PUBLIC:
        return
    unused = [name for name in door if all(_is_inside(user, package) for user in _users()[f"{package}.{name}"])]
    assert unused == [], f"names in the door of {package} that no other package imports"


def test_a_name_in_a_door_is_no_module_beside_it() -> None:
    clashes = [f"{p}.{name}" for p in STUBS for name, module in _door(p).items() if module]
    assert [name for name in clashes if name in MODULES and name not in CALLABLE] == []
