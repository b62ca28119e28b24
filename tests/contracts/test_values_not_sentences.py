"""No code reads what an error's message says: what a caller decides by is a class or an attribute."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "stratalog"

#: Where a library tells errors apart by their text alone. Errors of ours have no place here.
OF_LIBRARIES = {
    "remote/storage/store_errors.py": "obstore has one class for most answers of a store",
    "spark/export/delta_table.py": "delta-spark: a table that does not exist",
    "spark/export/iceberg_table.py": "iceberg: a commit that another one was ahead of, through py4j",
    "spark/session/doctor.py": "Spark gives the reason why no worker ran as text",
    "spark/ingest/through_spark.py": "Spark gives the error of a Python worker as text, ours within it",
    "cli/spark/session.py": "a channel of Spark Connect that fails, through grpc",
}

_TEXT_METHODS = frozenset(
    {"startswith", "endswith", "partition", "rpartition", "removeprefix", "removesuffix", "find", "index", "replace"}
)


class _Reads(ast.NodeVisitor):
    """Finds comparisons, searches and cuts of the text of exceptions that an `except` or a parameter names."""

    def __init__(self) -> None:
        self.found: list[int] = []
        self._exceptions: list[str] = []
        self._texts: set[str] = set()

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._within(node, [node.name] if node.name else [])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        named = [each.arg for each in arguments if each.annotation is not None and _is_exception(each.annotation)]
        texts, self._texts = self._texts, set()
        self._within(node, named)
        self._texts = texts

    def _within(self, node: ast.AST, names: list[str]) -> None:
        self._exceptions += names
        self.generic_visit(node)
        del self._exceptions[len(self._exceptions) - len(names) :]

    def visit_Assign(self, node: ast.Assign) -> None:
        if self._is_text(node.value):
            self._texts |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        searched = any(
            isinstance(operator, ast.In | ast.NotIn | ast.Eq | ast.NotEq) and self._is_text(right)
            for operator, right in zip(node.ops, node.comparators, strict=True)
        )
        if searched or (self._is_text(node.left) and not isinstance(node.ops[0], ast.Is | ast.IsNot)):
            self.found.append(node.lineno)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Attribute):
            cuts = function.attr in _TEXT_METHODS and self._is_text(function.value)
            matches = function.attr in ("match", "search", "fullmatch", "sub", "findall", "finditer", "split")
            if cuts or (matches and any(self._is_text(each) for each in node.args)):
                self.found.append(node.lineno)
        self.generic_visit(node)

    def _is_text(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self._texts
        if isinstance(node, ast.BoolOp):
            return any(self._is_text(each) for each in node.values)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("strip", "lower"):
            return self._is_text(node.func.value)
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("str", "repr")):
            return False
        return bool(node.args) and isinstance(node.args[0], ast.Name) and node.args[0].id in self._exceptions


def _is_exception(annotation: ast.expr) -> bool:
    return any(
        name.endswith(("Error", "Exception"))
        for each in ast.walk(annotation)
        if isinstance(each, ast.Name | ast.Attribute)
        for name in (each.id if isinstance(each, ast.Name) else each.attr,)
    )


def reads_of_messages(code: str) -> list[int]:
    """The lines that read the message of an exception."""
    reads = _Reads()
    reads.visit(ast.parse(code))
    return reads.found


def _sources() -> Iterator[tuple[str, Path]]:
    return ((path.relative_to(SOURCES).as_posix(), path) for path in sorted(SOURCES.rglob("*.py")))


def test_no_code_reads_the_message_of_an_error() -> None:
    found = {name: lines for name, path in _sources() if (lines := reads_of_messages(path.read_text()))}
    assert {name: lines for name, lines in found.items() if name not in OF_LIBRARIES} == {}
    assert sorted(set(OF_LIBRARIES) - set(found)) == [], "exceptions that are no longer needed"


@pytest.mark.parametrize(
    "line",
    [
        'found = "no such" in str(error)',
        'found = str(error).startswith("the copy quota")',
        "_, _, found = str(error).partition(': ')",
        "found = PATTERN.search(str(error))",
        "found = re.sub('a', 'b', str(error))",
        "text = str(error)\n    found = 'a' in text",
        "found = str(error).strip() == 'gone'",
    ],
)
def test_a_line_that_reads_a_message_is_found(line: str) -> None:
    assert reads_of_messages(f"try:\n    work()\nexcept OSError as error:\n    {line}\n")
    assert reads_of_messages(f"def why(error: OSError) -> None:\n    {line}\n")


def test_a_message_may_be_shown() -> None:
    assert not reads_of_messages(
        "try:\n    work()\nexcept OSError as error:\n    show(f'{error}', str(error) or 'none')\n"
    )
