"""Modules import each other at their top and in no circle; an import inside a function says why it is there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"

#: Rooms below `stratalog` in which every import inside a function has its reason. The list grows until it has all.
COMMENTED = [path.name for path in sorted((SOURCES / "stratalog").iterdir()) if path.is_dir()]


def _paths(*rooms: str) -> list[Path]:
    folders = [SOURCES / "stratalog" / room for room in rooms] or [SOURCES]
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


# --- no circles -------------------------------------------------------------------------------------------------------


def imports_at_load(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """What a module imports while it is loaded, as module and name (empty for a whole module)."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, "relative imports are for doors"
            yield from ((node.module, alias.name) for alias in node.names)
        else:
            yield from imports_at_load(node)


def _modules() -> dict[str, Path]:
    named = {".".join(path.relative_to(SOURCES).with_suffix("").parts): path for path in _paths()}
    return {name.removesuffix(".__init__"): path for name, path in named.items()}


def _behind_doors(modules: dict[str, Path]) -> dict[tuple[str, str], str]:
    """Which module a name comes from that is imported through a door."""
    found: dict[tuple[str, str], str] = {}
    for package, path in modules.items():
        stub = path.with_suffix(".pyi")
        if path.name == "__init__.py" and stub.exists():
            for node in ast.parse(stub.read_text()).body:
                if isinstance(node, ast.ImportFrom):
                    source = f"{package}.{node.module}" if node.module else package
                    found |= {(package, alias.asname or alias.name): source for alias in node.names}
    return found


def _resolve(module: str, name: str, modules: dict[str, Path], doors: dict[tuple[str, str], str]) -> str | None:
    if f"{module}.{name}" in modules:
        return f"{module}.{name}"
    if (module, name) in doors:
        return _resolve(doors[module, name], name, modules, doors)
    return module if module in modules else None


def test_no_module_needs_itself_to_be_loaded() -> None:
    modules = _modules()
    doors = _behind_doors(modules)
    graph = {
        module: {
            source
            for imported in imports_at_load(ast.parse(path.read_text()))
            if (source := _resolve(*imported, modules, doors)) is not None and source != module
        }
        for module, path in modules.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("a circle: " + " <- ".join(error.args[1]))


def test_what_is_imported_while_a_module_loads_is_seen() -> None:
    code = """
from a.b import c
if TYPE_CHECKING:
    from d import e
try:
    import f
except ImportError:
    f = None
class C:
    from g import h
    def method(self):
        import i
"""
    assert list(imports_at_load(ast.parse(code))) == [("a.b", "c"), ("f", ""), ("g", "h")]


# --- reasons ----------------------------------------------------------------------------------------------------------


def unexplained(code: str) -> list[int]:
    """The lines of imports inside functions that have no comment, on their line or above them.

    One comment does for imports that follow one another.
    """
    lines = code.splitlines()
    found: list[int] = []
    for function in ast.walk(ast.parse(code)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = {node.lineno for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom)}
            for number in sorted(inside):
                above = number - 1
                while "#" not in lines[above - 1] and (above in inside or not lines[above - 1].strip()):
                    above -= 1
                if not any("#" in lines[each - 1] for each in (number, above)):
                    found.append(number)
    return sorted(set(found))


def test_an_import_inside_a_function_says_why() -> None:
    found = {
        str(path.relative_to(SOURCES)): lines for path in _paths(*COMMENTED) if (lines := unexplained(path.read_text()))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("body", "missing"),
    [
        ("    import numpy as np", [2]),
        ("    import numpy as np  # start-up cost", []),
        ("    import numpy as np  # start-up cost\n    from a import b", []),
        ("    # start-up cost\n    import numpy as np\n\n    from a import b\n    from a import c", []),
        ("    x = 1  # one\n    y = 2\n    import numpy as np", [4]),
        ("    if x:\n        from a import b", [3]),
        ("    def g():\n        import a", [3]),
    ],
)
def test_an_import_without_a_reason_is_found(body: str, missing: list[int]) -> None:
    assert unexplained(f"def f():\n{body}\n") == missing


# --- numba ------------------------------------------------------------------------------------------------------------


def test_one_module_imports_numba() -> None:
    """Its modules import each other in circles, so two threads that import it in two places may each see half of it."""
    found = {
        str(path.relative_to(SOURCES))
        for path in _paths()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names])
        if name.partition(".")[0] == "numba"
    }
    assert found == {"stratalog/records/native/jit.py"}
