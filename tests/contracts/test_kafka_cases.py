"""Every case of Kafka's own storage tests has a row in docs/compatibility: our test of it, or why there is none.

`kafka_cases.json` lists the cases by class, as the test jars of Apache Kafka 4.3.1 have them (4.4.0 published none).
"""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "docs" / "compatibility"
CASES: dict[str, list[str]] = json.loads(Path(__file__).with_name("kafka_cases.json").read_text())

_ROW = re.compile(r"^\| `(\w+)` \| (.+) \|$")
_PROOF = re.compile(r"`(tests/[\w/]+\.py)::(\w+(?:::\w+)?)`")


def _rows(kafka_class: str) -> dict[str, str]:
    lines = (TABLES / f"{kafka_class}.md").read_text().splitlines()
    return {match[1]: match[2] for line in lines if (match := _ROW.match(line))}


@cache
def _tests_in(path: str) -> frozenset[str]:
    """Names of the test functions and `Class::method`s in one file of ours."""
    names: set[str] = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
            names |= {
                f"{node.name}::{member.name}"
                for member in node.body
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return frozenset(names)


@pytest.mark.parametrize("kafka_class", CASES)
def test_every_case_of_kafka_has_a_row(kafka_class: str) -> None:
    rows = _rows(kafka_class)
    assert [case for case in CASES[kafka_class] if case not in rows] == []


@pytest.mark.parametrize("kafka_class", CASES)
def test_every_row_names_tests_that_exist_or_says_why_there_is_none(kafka_class: str) -> None:
    for case, ours in _rows(kafka_class).items():
        if ours.startswith("none: "):
            continue
        proofs = _PROOF.findall(ours)
        assert proofs, f"{kafka_class}.{case}: no test and no reason: {ours}"
        for path, name in proofs:
            assert name in _tests_in(path), f"{kafka_class}.{case}: {path} has no {name}"


@pytest.mark.parametrize("table", sorted(TABLES.glob("*.md")), ids=lambda path: path.stem)
def test_every_test_that_a_table_names_exists(table: Path) -> None:
    """Also in tables that are not of one of Kafka's test classes."""
    for path, name in _PROOF.findall(table.read_text()):
        assert name in _tests_in(path), f"{table.name}: {path} has no {name}"
