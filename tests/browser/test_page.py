"""The page in a real browser: it shows what the broker has, in both schemes, narrow and wide, and stays fresh.

Needs Chromium on the path and `playwright`; without one of them everything here is skipped.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from stratalog.broker.server.listen_address import ListenAddress
from stratalog.broker.server.server import Broker
from stratalog.web.server import WebServer

pytestmark = pytest.mark.browser

WIDTHS = (400, 1600)
SCHEMES = ("light", "dark")
TIERED = {"remote.storage.enable": "true", "segment.bytes": str(1024 * 1024)}
LAGGING = {**TIERED, "remote.copy.lag.ms": "3600000", "remote.copy.lag.bytes": "1000000000"}
LONG_NAME = "a.topic.with.a.rather.long.name." + "x" * 150


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no browser tests")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on the path: apt install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, str]]:
    config = {"remote.log.storage.system.enable": "true", "remote.log.metadata.topic.num.partitions": "2"}
    directory: Path = tmp_path_factory.mktemp("page")
    with WebServer(ListenAddress("127.0.0.1", 0)) as web, Broker(data_dir=directory, config=config) as broker:
        web.start(broker.services)
        client = {"bootstrap.servers": broker.bootstrap_servers}
        admin = AdminClient(client)
        producer = Producer({**client, "batch.size": 50_000})
        for name, settings in (("orders", TIERED), ("lagging", LAGGING), ("plain", {}), (LONG_NAME, {})):
            admin.create_topics([NewTopic(name, 2, config=settings)])[name].result(30)
            for at in range(3000):
                producer.produce(name, value=bytes(1000), partition=at % 2)
        assert producer.flush(30) == 0
        yield broker, web.url


@pytest.fixture
def page(request: pytest.FixtureRequest, chromium: Any, served: tuple[Broker, str]) -> Iterator[Any]:
    """The page, loaded; errors in its console fail the test."""
    width, scheme = getattr(request, "param", (1600, "light"))
    made = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    errors: list[str] = []
    made.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    made.on("pageerror", lambda error: errors.append(str(error)))
    made.goto(served[1])
    made.wait_for_selector("details")
    yield made
    made.close()
    assert errors == []


@pytest.mark.parametrize("page", [(width, scheme) for width in WIDTHS for scheme in SCHEMES], indirect=True)
def test_nothing_is_wider_than_the_window_and_the_text_can_be_read(page: Any) -> None:
    for summary in page.query_selector_all("details > summary"):
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    ground, text = page.evaluate("(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))")
    assert contrast(ground, text) > 7


def contrast(one: str, other: str) -> float:
    """As WCAG defines it, of two rgb(...) colours."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_topics_are_shown_with_their_partitions_and_the_reason(page: Any) -> None:
    names = page.locator("details .name").all_inner_texts()
    assert [name.strip("▸▾ ") for name in names] == sorted(["orders", "lagging", "plain", LONG_NAME])
    page.click("details[data-topic=lagging] summary")
    row = page.locator("details[data-topic=lagging] tbody tr").first
    assert "remote.copy.lag.ms" in row.inner_text()
    assert page.locator("details[data-topic=lagging] .state").inner_text() == "copy lag"


def test_it_stays_fresh_and_what_was_opened_stays_open(page: Any, served: tuple[Broker, str]) -> None:
    page.click("details[data-topic=plain] summary")
    high_watermark = page.locator("details[data-topic=plain] tbody tr >> nth=0").locator(
        "td[data-name='high watermark']"
    )
    before = int(high_watermark.inner_text())
    producer = Producer({"bootstrap.servers": served[0].bootstrap_servers})
    producer.produce("plain", value=b"one more", partition=0)
    assert producer.flush(30) == 0
    page.wait_for_function(
        "expected => document.querySelector('details[data-topic=plain][open] td[data-name=\"high watermark\"]')"
        "?.textContent === expected",
        arg=str(before + 1),
    )


def test_topics_can_be_filtered_and_internal_ones_shown(page: Any) -> None:
    page.fill("#filter", "lag")
    assert page.locator("details").count() == 1
    page.fill("#filter", "")
    page.check("#internal")
    assert page.locator("details[data-topic=__remote_log_metadata]").count() == 1


def test_it_can_be_used_with_the_keyboard(page: Any) -> None:
    page.focus("details[data-topic=orders] summary")
    page.keyboard.press("Enter")
    assert page.locator("details[data-topic=orders][open]").count() == 1


def test_a_refresh_takes_nothing_from_under_the_pointer_and_the_keyboard(page: Any) -> None:
    summary = page.query_selector("details[data-topic=orders] summary")
    summary.click()
    page.wait_for_selector("details[data-topic=orders] tbody tr")
    row = page.query_selector("details[data-topic=orders] tbody tr")
    other = page.query_selector("details[data-topic=plain] summary .name")
    other.hover()
    page.mouse.down()
    _wait_for_refresh(page)
    page.mouse.up()
    assert page.locator("details[data-topic=plain][open]").count() == 1
    assert summary.evaluate("element => element.isConnected")
    assert row.evaluate("element => element.isConnected")
    summary.focus()
    _wait_for_refresh(page)
    assert summary.evaluate("element => element === document.activeElement")


def _wait_for_refresh(page: Any) -> None:
    """Until an answer that arrived from now on is shown: only then the page asks again."""
    for _ in range(2):
        with page.expect_request("**/api/topics"):
            pass


def test_what_was_opened_stays_open_while_it_is_filtered_out(page: Any) -> None:
    page.click("details[data-topic=orders] summary")
    page.wait_for_selector("details[data-topic=orders] tbody tr")
    page.fill("#filter", "plain")
    assert page.locator("details").count() == 1
    page.fill("#filter", "")
    names = page.locator("details .name").all_inner_texts()
    assert names == sorted(names)
    assert page.locator("details[data-topic=orders][open] tbody tr").count() == 2
