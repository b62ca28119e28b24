"""What the documents claim, where that can be checked: tables, links, the page of keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stratalog.broker.apis import load_apis
from stratalog.config.documentation import page

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

_ROW = re.compile(r"\| (\w+) \| (\d+) \| (\d+)–(\d+) \|.*", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?")
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)(#[^)]*)?\)")


def test_the_table_of_apis_is_what_the_broker_speaks() -> None:
    text = (ROOT / "docs" / "COMPATIBILITY.md").read_text()
    documented = [(name, int(key), int(low), int(high)) for name, key, low, high in _ROW.findall(text)]
    spoken = [(api.key.message, key, api.min_version, api.max_version) for key, api in sorted(load_apis().items())]
    assert documented == spoken


def test_the_page_of_configuration_keys_is_that_of_the_declarations() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text() == page()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    missing = [target for target, _ in _LINK.findall(path.read_text()) if not (path.parent / target).exists()]
    assert missing == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_test_that_is_named_is_there(path: Path) -> None:
    named = set(_TEST.findall(path.read_text()))
    texts = {file: (ROOT / file).read_text() if (ROOT / file).is_file() else "" for file, _ in named}
    missing = [
        (file, test)
        for file, test in named
        if not texts[file] or (test and not re.search(rf"^\s*(def|class) {test}\b", texts[file], re.MULTILINE))
    ]
    assert missing == []
