"""One noun, one meaning: a public class name stands once in the tree, and no name is one letter from another."""

from __future__ import annotations

import ast
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src" / "stratalog"

#: Names that two classes have, and why for now. The list only gets shorter.
TWICE: dict[str, str] = {}

#: Pairs that differ in one letter, and why they may. The list only gets shorter.
ONE_LETTER_APART: dict[tuple[str, str], str] = {}


def public_classes() -> dict[str, list[str]]:
    """The modules that define each public class name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        module = ast.parse(path.read_text())
        blocks = [module, *(node for node in module.body if isinstance(node, ast.If | ast.Try))]
        for node in (each for block in blocks for each in block.body):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path.relative_to(SOURCES).as_posix())
    return found


def one_letter_apart(names: list[str]) -> set[tuple[str, str]]:
    """Pairs of which one is the other with a letter more anywhere, or with another last letter."""
    known, found = set(names), set()
    by_beginning: dict[str, list[str]] = defaultdict(list)
    for name in names:
        by_beginning[name[:-1]].append(name)
        found |= {(name[:at] + name[at + 1 :], name) for at in range(len(name)) if name[:at] + name[at + 1 :] in known}
    for alike in by_beginning.values():
        found |= set(pairwise(sorted(alike)))
    return found


def test_a_public_class_name_stands_once_in_the_tree() -> None:
    twice = {name: where for name, where in public_classes().items() if len(where) > 1}
    assert {name: where for name, where in twice.items() if name not in TWICE} == {}
    assert sorted(set(TWICE) - set(twice)) == [], "exceptions that are no longer needed"


def test_no_class_name_is_one_letter_from_another() -> None:
    alike = one_letter_apart(sorted(public_classes()))
    assert alike - set(ONE_LETTER_APART) == set()
    assert set(ONE_LETTER_APART) - alike == set(), "exceptions that are no longer needed"


def test_no_module_is_the_plural_of_its_neighbour() -> None:
    found = []
    for directory in (SOURCES, *(path for path in SOURCES.rglob("*") if path.is_dir())):
        stems = {path.stem for path in directory.glob("*.py")} | {
            path.name for path in directory.iterdir() if (path / "__init__.py").exists()
        }
        for stem in stems:
            plurals = {f"{stem}s", f"{stem}es", f"{stem[:-1]}ies"} & stems
            found += [(directory.relative_to(SOURCES).as_posix(), stem, plural) for plural in plurals]
    assert found == []


def test_names_alike_are_found() -> None:
    names = ["Batch", "Commit", "Commits", "Segment", "TaskWriter", "TaskWrites", "Write", "Writer"]
    assert one_letter_apart(names) == {("Commit", "Commits"), ("TaskWriter", "TaskWrites"), ("Write", "Writer")}
