"""The console in a real browser, before a real broker: what is shown, what it does, and what it cannot be made to do.

Needs Chromium on the path and `playwright`; without one of them everything here is skipped.
"""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from stratalog.broker.server.listen_address import ListenAddress
from stratalog.broker.server.server import Broker
from stratalog.web import viewer as web_viewer
from stratalog.web.server import WebServer

pytestmark = pytest.mark.browser

TIERED = {"remote_storage_enable": "true", "segment_bytes": str(1024 * 1024)}
LONG_NAME = "a.topic.with.a.rather.long.name." + "x" * 150
SCRIPT = "<script>window.hacked = 1</script>"
IMAGE = "'\"><img src=x onerror='window.hacked = 1'>"
GROUP = "<script>/\"'"
ONE = "/topics/orders/partitions/0"
PAGES = (
    "/",
    "/topics",
    f"/topics/{LONG_NAME}",
    "/topics/orders",
    "/topics/orders/settings",
    "/topics/orders/consumers",
    "/topics/orders/messages",
    "/topics/orders/produce",
    "/topics/orders/retention?retention_ms=60000",
    ONE,
    f"{ONE}/batches",
    f"{ONE}/records",
    "/topics/hostile/messages",
    "/groups",
    "/group?id=%3Cscript%3E%2F%22%27",
    "/tier",
    "/cluster",
    "/security",
    "/events",
    "/topics/none",
)


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


class Served:
    """A broker, its console, and a client's settings."""

    def __init__(self, broker: Broker, web: WebServer) -> None:
        self.broker = broker
        self.url = web.url.rstrip("/")
        self.client = {"bootstrap.servers": broker.bootstrap_servers}

    def produce(self, topic: str, *values: bytes, **fields: Any) -> None:
        producer = Producer(self.client)
        for value in values:
            producer.produce(topic, value=value, partition=0, **fields)
        assert producer.flush(30) == 0

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        admin = AdminClient(self.client)
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, config=settings)])[name].result(30)

    def setting(self, topic: str, key: str) -> str | None:
        known = self.broker.services.metadata.topic(topic)
        assert known is not None
        return known.configs.get(key)


@contextmanager
def serving(directory: Path) -> Iterator[Served]:
    config = {
        "remote.log.storage.system.enable": "true",
        "remote.log.metadata.topic.num.partitions": "1",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "stratalog.web.allow.changes": "true",
    }
    with WebServer(ListenAddress("127.0.0.1", 0)) as web, Broker(data_dir=directory, config=config) as broker:
        web.start(broker.services)
        yield Served(broker, web)


def follow(page: Any, leads: str) -> None:
    """Click a link, or the button that sends a form, and wait for the page that comes."""
    with page.expect_navigation():
        page.click(leads)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("console")) as made:
        for name in ("plain", "hostile", LONG_NAME):
            made.create(name)
        made.create("orders", 2, **TIERED)
        made.produce("orders", *[bytes(1000)] * 2500)
        made.produce(
            "hostile", SCRIPT.encode(), key=IMAGE.encode(), headers=[(SCRIPT, b"a\nb"), ("rtl\u202e", b"\xff")]
        )
        made.produce("hostile", b"\x00\x01\xff", key=b"\x00")
        consumer = Consumer({**made.client, "group.id": GROUP, "auto.offset.reset": "earliest"})
        consumer.subscribe(["hostile"])
        while consumer.poll(10) is None:
            pass
        consumer.commit(asynchronous=False)
        consumer.close()
        yield made


@contextmanager
def open_page(
    chromium: Any, width: int = 1440, scheme: str = "light", expected: str = "", **more: Any
) -> Iterator[Any]:
    """Open a page; errors in its console fail the test, but those that are expected."""
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)
    context.set_default_timeout(20_000)
    made = context.new_page()
    errors: list[str] = []
    made.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    made.on("pageerror", lambda error: errors.append(str(error)))
    yield made
    context.close()
    assert [error for error in errors if not expected or expected not in error] == []


@pytest.fixture
def page(chromium: Any, served: Served) -> Iterator[Any]:
    with open_page(chromium) as made:
        yield made


# --- how it looks -----------------------------------------------------------------------------------------------------


def _check_looks(chromium: Any, served: Served, width: int, scheme: str) -> None:
    with open_page(chromium, width, scheme, expected="404") as page:
        for path in PAGES:
            page.goto(served.url + path)
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{path} is {wide} pixels too wide at {width}"
            assert page.evaluate("window.hacked") is None, path
            ground, text, soft = page.evaluate(
                "(() => { const s = getComputedStyle(document.body), e = document.querySelector('.soft');"
                " return [s.backgroundColor, s.color, e ? getComputedStyle(e).color : s.color] })()"
            )
            assert contrast(ground, text) > 7, path
            assert contrast(ground, soft) > 4.5, path


def test_nothing_is_wider_than_a_phone_and_the_text_can_be_read(chromium: Any, served: Served) -> None:
    _check_looks(chromium, served, 390, "dark")


@pytest.mark.soak
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1440, "light"), (1440, "dark"), (2560, "light")])
def test_nothing_is_wider_than_any_window(chromium: Any, served: Served, width: int, scheme: str) -> None:
    _check_looks(chromium, served, width, scheme)


def contrast(one: str, other: str) -> float:
    """As WCAG defines it, of two rgb(...) colours."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


# --- what it shows ----------------------------------------------------------------------------------------------------


def test_hostile_keys_values_headers_and_groups_are_text(page: Any, served: Served) -> None:
    page.goto(f"{served.url}/topics/hostile/messages")
    text = page.inner_text("#records")
    assert SCRIPT in text
    assert IMAGE in text
    assert "rtl\\u202e" in text
    assert "00 01 ff" in text
    page.goto(f"{served.url}/groups")
    follow(page, "td.name a")
    assert page.inner_text("h1") == GROUP
    assert "hostile" in page.inner_text("tbody >> nth=0")
    assert page.evaluate("window.hacked") is None


def test_a_segment_leads_to_its_batches_and_they_to_their_records(page: Any, served: Served) -> None:
    page.goto(served.url + ONE)
    page.focus("svg[data-lane] a >> nth=1")
    page.keyboard.press("Enter")
    page.wait_for_url("**/batches?offset=*")
    first = int(page.url.partition("offset=")[2])
    follow(page, "tbody tr >> nth=0 >> a")
    assert int(page.inner_text(".record >> nth=0 >> .at b").replace("\u202f", "")) == first


def test_a_part_of_the_map_is_looked_at_closer_by_dragging(page: Any, served: Served) -> None:
    page.goto(f"{served.url}{ONE}?axis=offset")
    box = page.locator("svg[data-lane] >> nth=-1").bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 20, steps=4)
    page.mouse.up()
    page.wait_for_url("**first=*")
    assert page.locator("svg[data-lane] >> nth=-1 >> rect").count() == 1


def test_pages_stay_fresh_and_nothing_is_taken_from_under_pointer_and_keyboard(page: Any, served: Served) -> None:
    page.goto(f"{served.url}/topics/plain")
    cell = page.query_selector("td[data-label='High watermark']")
    before = int(cell.inner_text())
    link = page.query_selector("td.name a")
    link.focus()
    served.produce("plain", b"one more")
    page.wait_for_function(
        "([cell, expected]) => cell.isConnected && cell.textContent === expected", arg=[cell, str(before + 1)]
    )
    assert link.evaluate("element => element === document.activeElement")


def test_a_search_keeps_its_state_in_the_address_and_what_is_typed(page: Any, served: Served) -> None:
    page.goto(f"{served.url}/topics")
    page.keyboard.press("/")
    page.keyboard.type("ord")
    page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 1")
    assert page.url.endswith("q=ord&internal=no&sort=name&order=asc")
    assert page.input_value("input[name=q]") == "ord"
    page.reload()
    assert page.locator("tbody tr").count() == 1


def test_records_come_live(page: Any, served: Served) -> None:
    page.goto(f"{served.url}/topics/plain/messages?contains=wanted")
    page.click("#live")
    served.produce("plain", b"other", b"wanted 1")
    page.wait_for_selector("#records >> text=wanted 1")
    assert "other" not in page.inner_text("#records")


def test_sliders_try_another_retention_and_change_nothing(page: Any, served: Served) -> None:
    page.goto(f"{served.url}/topics/orders/retention")
    page.focus("input[type=range][data-for=retention_ms]")
    page.keyboard.press("Home")
    page.wait_for_selector(".timeline.tried")
    assert "retention_ms=60000" in page.url
    assert served.setting("orders", "retention.ms") is None


def test_everything_is_there_without_scripts(chromium: Any, served: Served) -> None:
    with open_page(chromium, java_script_enabled=False) as page:
        page.goto(served.url)
        follow(page, "nav >> text=Topics")
        page.fill("input[name=q]", "orders")
        follow(page, "button:has-text('Search')")
        follow(page, "td.name a")
        follow(page, "td.name a")
        follow(page, "svg[data-lane] a >> nth=0")
        follow(page, "tbody tr >> nth=0 >> a")
        assert page.locator(".record").count() == 20


def test_an_empty_broker_shows_how_to_connect_with_its_own_address(chromium: Any, tmp_path: Path) -> None:
    with serving(tmp_path) as empty, open_page(chromium) as page:
        page.goto(empty.url)
        assert page.inner_text(".start").count(empty.broker.bootstrap_servers) == 6
        page.goto(f"{empty.url}/topics")
        assert "There is no topic yet" in page.inner_text("main")


def test_a_broker_that_stalls_is_said_to(chromium: Any, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_viewer, "LOOP_TIMEOUT_S", 0.2)
    go_on = threading.Event()
    with open_page(chromium, expected="503") as page:
        served.broker.services.loop.call_soon_threadsafe(go_on.wait)
        try:
            page.goto(f"{served.url}/groups")
            assert page.inner_text("h1") == "The broker does not respond"
            page.goto(f"{served.url}/topics")
            assert page.locator("tbody tr").count() == 4
            page.goto(served.url)
            assert "The broker does not respond" in page.inner_text(".notice.bad >> nth=0")
        finally:
            go_on.set()
        page.goto(f"{served.url}/groups")
        assert page.inner_text("h1") == "Consumer groups"


# --- changes ----------------------------------------------------------------------------------------------------------


def _set(page: Any, key: str, value: str) -> None:
    page.fill(f"tr[id='{key}'] input[name=value]", value)
    follow(page, f"tr[id='{key}'] button:has-text('Set')")


def test_a_setting_is_changed_and_two_tabs_do_not_overwrite_each_other(chromium: Any, served: Served) -> None:
    with open_page(chromium, expected="40") as page:
        other = page.context.new_page()
        for tab in (page, other):
            tab.goto(f"{served.url}/topics/plain/settings")
        _set(page, "retention.ms", "86400000")
        assert "retention.ms of plain is now 86400000" in page.inner_text("#done > .notice.good")
        _set(other, "retention.ms", "1000")
        assert "changed" in other.inner_text(".notice.bad")
        assert served.setting("plain", "retention.ms") == "86400000"
        _set(other, "retention.ms", "soon")
        assert "soon" in other.inner_text("tr[id='retention.ms'] .wrong")


def test_a_record_is_produced(page: Any, served: Served) -> None:
    page.goto(f"{served.url}/topics/plain/produce")
    page.fill("input[name=key]", "clé")
    page.fill("textarea[name=value]", "two\nlines")
    page.fill("textarea[name=headers]", "trace=abc\nodd=a=b")
    follow(page, "main button:has-text('Produce')")
    text = page.inner_text(".record >> nth=0")
    assert "clé" in text
    assert "two\nlines" in text
    assert "odd = a=b" in text


# --- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_a_record_of_ten_megabytes_is_shown_in_part_and_downloaded_whole(page: Any, served: Served) -> None:
    served.create("large", max_message_bytes="20000000")
    producer = Producer({**served.client, "message.max.bytes": 20_000_000})
    producer.produce("large", value=b"ab" * 5_000_000, key=b"\xff" * 10_000)
    assert producer.flush(30) == 0
    page.goto(f"{served.url}/topics/large/messages")
    assert len(page.inner_text("#records")) < 20_000
    with page.expect_download() as download:
        page.locator("a[download]").nth(1).click()
    assert Path(download.value.path()).stat().st_size == 10_000_000


@pytest.mark.soak
@pytest.mark.parametrize("count", [0, 10, 1000])
def test_any_number_of_topics_is_listed_at_once(chromium: Any, tmp_path: Path, count: int) -> None:
    with serving(tmp_path) as many, open_page(chromium) as page:
        for at in range(count):
            many.broker.create_topic(f"topic-{at:04}")
        page.goto(f"{many.url}/topics")
        assert page.locator("tbody tr").count() == min(count, 50)
        page.goto(f"{many.url}/topics?q=0999&sort=local&order=desc")
        assert page.locator("tbody tr").count() == (count == 1000)
