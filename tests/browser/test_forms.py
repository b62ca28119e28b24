"""The forms of the console in a real browser: what is typed is done, and what is wrong is said beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.browser.test_console import Served, chromium, follow, open_page, serving

from stratalog.broker.security import credential_of_password
from stratalog.broker.server.listen_address import ListenAddress
from stratalog.broker.server.server import Broker
from stratalog.web.server import WebServer

__all__ = ["chromium"]

pytestmark = pytest.mark.browser

GROUP = "readers/\"'"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker where everybody may change everything."""
    with serving(tmp_path_factory.mktemp("forms")) as made:
        made.create("orders", 2)
        made.produce("orders", *[b"x"] * 10)
        yield made


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The console of a broker with an authorizer, of which `admin` may do everything."""
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "stratalog.web.allow.changes": "true",
    }
    directory = tmp_path_factory.mktemp("guarded")
    with WebServer(ListenAddress("127.0.0.1", 0)) as web, Broker(data_dir=directory, config=config) as broker:
        credential = credential_of_password("SCRAM-SHA-256", "admin-secret", 4096)
        broker.services.scram.change({("SCRAM-SHA-256", "admin"): credential})
        web.start(broker.services)
        yield web.url.rstrip("/")


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A page; forms that are refused are answered with 400, which the browser's console notes."""
    with open_page(chromium, expected="400") as made:
        yield made


def done(page: Any) -> str:
    return str(page.inner_text("#done > .notice.good"))


# --- topics and their records -----------------------------------------------------------------------------------------


def test_a_topic_is_made_changed_and_deleted(page: Any, served: Served) -> None:
    page.goto(f"{served.url}/topics")
    page.fill("input[name=new_topic]", "a b")
    page.fill("textarea[name=configs]", "retention.ms=86400000")
    follow(page, "button:has-text('Create')")
    assert "invalid" in page.inner_text(".field:has(input[name=new_topic]) .wrong").lower()
    assert page.input_value("textarea[name=configs]") == "retention.ms=86400000"
    page.fill("input[name=new_topic]", "made.here")
    page.fill("input[name=partitions]", "3")
    follow(page, "button:has-text('Create')")
    assert done(page) == "topic made.here is created"
    assert page.locator("tbody tr").count() == 3
    assert served.setting("made.here", "retention.ms") == "86400000"

    page.click(".tabs >> text=Settings")
    follow(page, "tr[id='retention.ms'] button:has-text('Back to default')")
    assert served.setting("made.here", "retention.ms") is None

    page.fill("input[name=confirm]", "made")
    follow(page, "button:has-text('Delete')")
    assert "type the name" in page.inner_text(".field:has(input[name=confirm]) .wrong")
    page.fill("input[name=confirm]", "made.here")
    follow(page, "button:has-text('Delete')")
    assert done(page) == "topic made.here is deleted"
    assert served.broker.services.metadata.topic("made.here") is None


def test_records_of_bytes_and_tombstones_are_produced(page: Any, served: Served) -> None:
    page.goto(f"{served.url}/topics/orders/produce")
    page.select_option("select[name=form]", "hex")
    page.fill("input[name=partition]", "1")
    page.fill("input[name=key]", "00 ff")
    page.fill("textarea[name=value]", "zz")
    follow(page, "main button:has-text('Produce')")
    assert "expected bytes in hexadecimal" in page.inner_text(".field:has(textarea[name=value]) .wrong")
    assert page.input_value("input[name=key]") == "00 ff"
    page.fill("textarea[name=value]", "")
    page.select_option("select[name=tombstone]", "yes")
    follow(page, "main button:has-text('Produce')")
    assert done(page) == "appended to orders-1 at offset 0"
    text = page.inner_text(".record >> nth=0")
    assert "00 ff" in text
    assert "null" in text


# --- groups -----------------------------------------------------------------------------------------------------------


def test_a_group_goes_on_where_the_form_says(page: Any, served: Served) -> None:
    consumer = Consumer({**served.client, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition("orders", 0, 10)], asynchronous=False)
    consumer.close()
    page.goto(f"{served.url}/groups")
    page.click("td.name a")
    assert page.inner_text("h1") == GROUP
    assert page.inner_text("td[data-label=Lag] >> nth=0") == "0"
    page.fill("input[name=reset_partition]", "0")
    page.select_option("select[name=reset_to]", "offset")
    page.fill("input[name=reset_value]", "soon")
    follow(page, "button:has-text('Set')")
    assert page.inner_text(".field:has(input[name=reset_value]) .wrong") == "expected an offset"
    assert page.get_attribute("main", "data-live") is None, "a refresh would take away what was typed wrong"
    page.fill("input[name=reset_value]", "4")
    follow(page, "button:has-text('Set')")
    assert done(page) == "the group continues in orders-0 at 4"
    assert page.inner_text("td[data-label=Lag] >> nth=0") == "6"
    served.produce("orders", b"x")
    page.wait_for_selector("td[data-label=Lag]:text-is('7')")
    assert done(page), "the page asked for itself again"


# --- security ---------------------------------------------------------------------------------------------------------


def test_a_limit_is_set_and_taken_away(page: Any, served: Served) -> None:
    page.goto(f"{served.url}/security")
    for value, shown in (("1048576", True), ("", False)):
        page.click("summary:has-text('Set a limit')")
        page.fill("input[name=quota_user]", "alice")
        page.select_option("select[name=quota_key]", "producer_byte_rate")
        page.fill("input[name=quota_value]", value)
        follow(page, "#quotas button:has-text('Set')")
        assert done(page)
        assert ("producer_byte_rate = 1048576" in page.inner_text("#quotas")) is shown
    page.click("summary:has-text('Set a limit')")
    page.fill("input[name=quota_user]", "alice")
    page.fill("input[name=quota_value]", "much")
    follow(page, "#quotas button:has-text('Set')")
    assert page.is_visible("#quotas .wrong")


def test_users_and_rules_are_made_and_removed_by_who_has_logged_in(page: Any, guarded: str) -> None:
    page.goto(f"{guarded}/security")
    page.fill("input[name=user]", "admin")
    page.fill("input[name=password]", "admin-secret")
    follow(page, "main button:has-text('Log in')")
    page.wait_for_url("**/security")

    page.click("summary:has-text('password')")
    page.fill("#users details input[name=user]", "alice")
    follow(page, "#users button:has-text('Set')")
    assert page.is_visible("#users details .wrong")
    page.fill("#users details input[name=user]", "alice")
    page.fill("#users details input[name=password]", "alice-secret")
    follow(page, "#users button:has-text('Set')")
    assert "alice" in page.inner_text("#users tbody")
    assert "alice-secret" not in page.content()

    page.click("summary:has-text('Add a rule')")
    page.fill("#acls details input[name=principal]", "User:alice")
    page.fill("#acls details input[name=name]", "orders")
    follow(page, "#acls button:has-text('Add')")
    assert "User:alice" in page.inner_text("#acls tbody")
    follow(page, "#acls tbody button:has-text('Remove')")
    page.wait_for_selector("#acls .empty")

    follow(page, "#users tbody tr:has-text('alice') button:has-text('Remove')")
    assert "alice" not in page.inner_text("#users tbody")
    follow(page, "header button:has-text('Log out')")
    page.wait_for_url("**/login")


# --- charts, keys and paper -------------------------------------------------------------------------------------------


def test_request_times_are_drawn_and_reported_by_name(page: Any, served: Served) -> None:
    served.produce("orders", b"x")
    page.goto(served.url)
    page.wait_for_selector("tr:has-text('Produce') >> td.num")
    chart = page.locator("[data-chart='produceP50Ms,produceP99Ms']")
    chart.locator("path.s1").wait_for(state="attached")
    points = chart.locator("path.s1").get_attribute("d")
    page.wait_for_function(
        "before => document.querySelector('[data-chart^=produce] path.s1').getAttribute('d') !== before", arg=points
    )
    reported = page.locator("section:has(> h2:text-is('Produce requests')) .keys b").all_inner_texts()
    assert all(float(each.split("\u202f")[0]) > 0 for each in reported)
    assert chart.locator(".top").inner_text().endswith("ms")


def test_the_keyboard_reaches_everything_and_shows_where_it_is(page: Any, served: Served) -> None:
    page.goto(f"{served.url}/topics")
    seen = []
    for _ in range(14):
        page.keyboard.press("Tab")
        name, width, style = page.evaluate(
            "(() => { const e = document.activeElement, s = getComputedStyle(e);"
            " return [e.textContent.trim() || e.name || e.id, parseFloat(s.outlineWidth), s.outlineStyle] })()"
        )
        assert (width, style) == (2, "solid"), name
        seen.append(name)
    assert seen[0] == "Skip to the content"
    assert "Topics" in seen
    assert "q" in seen


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_paper_gets_the_page_without_its_controls_dark_on_white(chromium: Any, served: Served, scheme: str) -> None:
    with open_page(chromium, 794, scheme) as page:
        page.emulate_media(media="print")
        for path in ("/", "/topics", "/topics/orders", "/topics/orders/settings", "/groups", "/security", "/cluster"):
            page.goto(served.url + path)
            controls = page.locator("header, nav, button, select, textarea, details, input:not(td input)")
            assert [each.evaluate("e => e.outerHTML") for each in controls.all() if each.is_visible()] == [], path
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
            texts = "[...document.querySelectorAll('main h1, main h2, main td, main p')]"
            colours = page.evaluate(f"{texts}.map(each => getComputedStyle(each).color)")
            assert {each for each in colours if sum(map(int, each[4:-1].split(","))) > 420} == set(), path
