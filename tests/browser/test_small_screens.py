"""The console on a phone: what leads on is on the screen, and bytes keep their rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.browser.test_console import Served, chromium, open_page, served

__all__ = ["chromium", "served"]

_OUTSIDE = """
[...document.querySelectorAll('header.bar nav a, nav.tabs a')].filter(each => {
    const box = each.getBoundingClientRect(), bar = each.parentElement.getBoundingClientRect();
    return box.left < 0 || box.right > innerWidth || box.bottom > bar.bottom + 1 || box.right > bar.right + 1;
}).map(each => each.textContent)
"""


@pytest.fixture
def phone(chromium: Any) -> Iterator[Any]:
    with open_page(chromium, 390) as page:
        yield page


@pytest.mark.parametrize("path", ["", "/settings", "/produce", "/retention"])
def test_every_page_of_a_topic_can_be_chosen_without_scrolling(phone: Any, served: Served, path: str) -> None:
    phone.goto(f"{served.url}/topics/orders{path}")
    assert phone.locator("nav.tabs a").count() == 6
    assert phone.evaluate(_OUTSIDE) == []


def test_a_row_of_bytes_is_one_line(phone: Any, served: Served) -> None:
    served.create("bytes")
    served.produce("bytes", bytes(range(256)))
    phone.goto(f"{served.url}/topics/bytes/partitions/0/records")
    lines, height, shown = phone.evaluate(
        "(() => { const e = document.querySelector('pre.hex'), s = getComputedStyle(e), r = document.createRange();"
        " r.selectNodeContents(e);"
        " return [e.textContent.split('\\n').length, parseFloat(s.lineHeight) || 1.5 * parseFloat(s.fontSize),"
        " r.getBoundingClientRect().height] })()"
    )
    assert lines == 16
    assert round(shown / height) == lines
