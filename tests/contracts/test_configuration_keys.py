"""Every key that is declared is read by code, or is said to have no effect; the page of keys is written from that."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from stratalog.config.broker import BROKER_KEYS
from stratalog.config.group import GROUP_KEYS
from stratalog.config.keys import ConfigKey
from stratalog.config.topic import TOPIC_KEYS

SOURCES = Path(__file__).parents[2] / "src" / "stratalog"
#: Where keys are declared by calls of `_key`, and described: naming a key there is not reading it.
DECLARATIONS = {SOURCES / "config" / name for name in ("broker.py", "group.py", "topic.py")}
NOT_READING = {SOURCES / "config" / name for name in ("documentation.py", "kafka_keys.py", "unkept.py")}
#: Letters that the fixed part of a name has at least that is put together.
_FIXED_MIN = 8

_TOPIC_BY_BROKER_KEY = {key.broker_key: key for key in TOPIC_KEYS if key.broker_key}
_TOPIC_KEYS = list(TOPIC_KEYS)
_GROUP_BY_BROKER_KEY = {key.broker_key: key for key in GROUP_KEYS if key.broker_key}
_COARSE = {coarse for key in BROKER_KEYS for coarse, _ in key.coarser}


@cache
def _reads() -> tuple[frozenset[str], tuple[re.Pattern[str], ...], frozenset[str]]:
    """Of all code: whole texts, patterns of those with gaps in them, and names of attributes."""
    texts, patterns, attributes = set(), set(), set()
    for path in SOURCES.rglob("*.py"):
        if path in NOT_READING:
            continue
        for node in _nodes(ast.parse(path.read_text()), declares=path in DECLARATIONS):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
            elif isinstance(node, ast.Attribute):
                attributes.add(node.attr)
            elif isinstance(node, ast.JoinedStr):
                fixed = [part.value if isinstance(part, ast.Constant) else None for part in node.values]
                if sum(len(part) for part in fixed if isinstance(part, str)) >= _FIXED_MIN:
                    patterns.add("".join(".+" if part is None else re.escape(str(part)) for part in fixed))
    return frozenset(texts), tuple(map(re.compile, sorted(patterns))), frozenset(attributes)


def _nodes(node: ast.AST, *, declares: bool) -> Iterator[ast.AST]:
    if declares and isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_key":
        return
    yield node
    if not isinstance(node, ast.JoinedStr):
        for child in ast.iter_child_nodes(node):
            yield from _nodes(child, declares=declares)


def _is_read_by_name(name: str) -> bool:
    texts, patterns, _ = _reads()
    return name in texts or any(pattern.fullmatch(name) for pattern in patterns)


def _is_read(key: ConfigKey) -> bool:
    """By its name; a topic's also as a field of `LogConfig`; a broker's also as the default of another that is read."""
    _, _, attributes = _reads()
    if key in _TOPIC_KEYS:
        field = key.name.replace(".", "_")
        return field in attributes or f"effective_{field}" in attributes or _is_read_by_name(key.name)
    topic_key = _TOPIC_BY_BROKER_KEY.get(key.name)
    if topic_key is not None:
        return _is_read(topic_key)
    group_key = _GROUP_BY_BROKER_KEY.get(key.name)
    if group_key is not None and _is_read_by_name(group_key.name):
        return True
    return key.name in _COARSE or _is_read_by_name(key.name)


@pytest.mark.parametrize("key", [*BROKER_KEYS, *TOPIC_KEYS], ids=lambda key: key.name)
def test_a_key_is_read_or_said_to_have_no_effect(key: ConfigKey) -> None:
    assert _is_read(key) or key.no_effect, f"nothing reads {key.name}: let it do what it says, or say no_effect="
