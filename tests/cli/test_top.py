"""`stratalog top`: what a broker has is shown, in any size, as text and JSON, also of one that goes and comes back."""

from __future__ import annotations

import http.server
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from rich.cells import cell_len
from tests.support.ports import free_port
from tests.support.waiting import wait_until

from stratalog.broker.server.listen_address import ListenAddress
from stratalog.broker.server.server import Broker
from stratalog.cli.main import run
from stratalog.cli.top.screen import TopView, lines_of
from stratalog.cli.top.snapshot import TopOrder, TopSnapshot, WebSource, look
from stratalog.cli.top.watching import BrokerWatch
from stratalog.cli.web_address import WebAddress
from stratalog.web import viewer as web_viewer
from stratalog.web.server import WebServer

Captured = pytest.CaptureFixture[str]
RECORDS = 20


@contextmanager
def served(broker: Broker, port: int = 0) -> Iterator[WebServer]:
    web = WebServer(ListenAddress("127.0.0.1", port))
    web.start(broker.services)
    try:
        yield web
    finally:
        web.close()


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, WebServer]]:
    """A broker with a topic of which a group has read a half, and topics with nothing in them."""
    settings = {"offsets.topic.num.partitions": 1, "remote.log.storage.system.enable": "true"}
    with Broker(data_dir=tmp_path_factory.mktemp("busy"), config=settings) as broker:
        broker.create_topic("orders")
        broker.create_topic("a-topic-with-a-name-of-two-hundred-letters-" + "x" * 150)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(RECORDS):
            producer.produce("orders", str(number))
        assert producer.flush(30) == 0
        for group, offset in (("late", 5), ("early\x1b[2J\ngroup", RECORDS)):
            consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
            consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
            consumer.close()
        with served(broker) as web:
            wait_until(lambda: any(each["name"] == "Produce" for each in _requests(web)), "times of requests")
            yield broker, web


def _requests(web: WebServer) -> list[dict[str, Any]]:
    return list(WebAddress(web.url).get("/api/overview")["requests"])


@pytest.fixture
def snapshot(busy: tuple[Broker, WebServer]) -> TopSnapshot:
    return look(WebAddress(busy[1].url), TopOrder.LOCAL)


def shown(view: TopView, width: int, height: int | None) -> list[str]:
    return [line.plain for line in lines_of(view, width, height)]


def view_of(snapshot: TopSnapshot | None, **fields: Any) -> TopView:
    return TopView("http://h:1", TopOrder.LOCAL, 1_700_000_000_000, snapshot, has_keys=True, **fields)


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_json_has_requests_topics_and_groups_the_one_that_is_behind_first(
    capsys: Captured, busy: tuple[Broker, WebServer]
) -> None:
    broker, web = busy
    assert run(["top", "--web", web.url, "--once", "--json", "--sort", "records"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    reported = json.loads(line)
    assert (reported["type"], reported["web"]) == ("broker", web.url.rstrip("/"))
    assert reported["broker"]["bootstrapServers"] == broker.bootstrap_servers
    produce = next(each for each in reported["requests"] if each["name"] == "Produce")
    assert produce["requests"] >= 1
    assert 0 < produce["p50Ms"] <= produce["p99Ms"]
    assert (reported["topics"][0]["name"], reported["topics"][0]["records"]) == ("orders", RECORDS)
    assert [(each["id"], each["lag"]) for each in reported["groups"]] == [
        ("late", RECORDS - 5),
        ("early\x1b[2J\ngroup", 0),
    ]
    assert reported["numbers"]["topics"] == 2


def test_a_pipe_gets_plain_lines(capsys: Captured, busy: tuple[Broker, WebServer]) -> None:
    broker, web = busy
    assert run(["top", "--web", web.url.removeprefix("http://"), "--once"]) == 0
    out = capsys.readouterr().out
    assert out.isascii()
    assert "\x1b" not in out
    assert out.startswith("stratalog top  ")
    assert f"broker 1 at {broker.bootstrap_servers}" in out
    words = [line.split() for line in out.splitlines()]
    heads = [each[0] for each in words if each and each[0].isupper()]
    assert heads == ["REQUEST", "TOPIC", "GROUP"]
    assert [each[:2] for each in words if each and each[0] == "late"] == [["late", str(RECORDS - 5)]]
    assert [each for each in words if each and each[0] == "Produce"]


@pytest.mark.parametrize("order", TopOrder)
def test_topics_are_sorted_as_asked(busy: tuple[Broker, WebServer], order: TopOrder) -> None:
    found = look(WebAddress(busy[1].url), order)
    fields = {
        TopOrder.IN: "bytesInRate",
        TopOrder.OUT: "bytesOutRate",
        TopOrder.RECORDS: "records",
        TopOrder.LOCAL: "localBytes",
        TopOrder.UPLOAD: "uploadBytes",
        TopOrder.NAME: "name",
    }
    values = [each[fields[order]] for each in found.topics]
    assert values == sorted(values, reverse=order is not TopOrder.NAME)


# --- every size -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 10, 20, 40, 60, 80, 132, 250])
@pytest.mark.parametrize("height", [1, 5, 12, 24, 60, None])
def test_no_line_is_too_wide_and_none_too_many(snapshot: TopSnapshot, width: int, height: int | None) -> None:
    """Wide characters, hostile names and many rows too."""
    group = {**snapshot.groups[0], "id": "\u65e5\u672c\u8a9e" * 40}
    many = replace(
        snapshot,
        groups=(group, *snapshot.groups) * 30,
        topics=snapshot.topics * 30,
        attention=({"severity": "bad", "title": "The disk\nis full", "text": "x" * 300},) * 7,
    )
    for view in (view_of(many), view_of(many, problem="gone", problem_since_ms=0), view_of(None, problem="x" * 300)):
        lines = shown(view, width, height)
        assert max(map(cell_len, lines)) <= width
        assert height is None or len(lines) <= height
        assert all(line.isprintable() for line in lines)


def test_a_narrow_terminal_keeps_what_matters_most(snapshot: TopSnapshot) -> None:
    lines = shown(view_of(snapshot), 40, 40)
    heads = [line.split() for line in lines if line[:5].isupper()]
    assert heads[0] == ["REQUEST", "RATE", "P50", "P99"]
    narrower = shown(view_of(snapshot), 30, 40)
    assert [line.split() for line in narrower if line.startswith("REQUEST")] == [["REQUEST", "RATE", "P99"]]
    assert [each for each in lines if each.startswith("late") and str(RECORDS - 5) in each]


def test_sections_share_a_low_terminal_and_say_what_is_left_out(snapshot: TopSnapshot) -> None:
    many = replace(snapshot, topics=snapshot.topics * 30, topics_found=5000)
    lines = shown(view_of(many), 100, 24)
    assert len(lines) == 24
    (topics,) = [line for line in lines if line.startswith("TOPIC")]
    more = re.search(r"\(\+([\d,]+)\)", topics)
    assert more is not None
    shown_topics = len([line for line in lines if line.startswith(("orders", "a-topic"))])
    assert int(more[1].replace(",", "")) == 5000 - shown_topics
    assert [line for line in lines if line.startswith("GROUP")]
    assert lines[-1].startswith("q:quit")


# --- a broker that goes away ------------------------------------------------------------------------------------------


def test_a_broker_that_goes_is_said_so_and_seen_again_when_it_is_back(busy: tuple[Broker, WebServer]) -> None:
    broker, _ = busy
    with served(broker) as web:
        port = int(web.url.rstrip("/").rpartition(":")[2])
        watch = BrokerWatch(WebSource(WebAddress(web.url)), TopOrder.IN, 0.02, lambda: None)
        watch.start()
        wait_until(lambda: watch.state.snapshot, "the first look")
    try:
        wait_until(lambda: watch.state.problem, "the end of the web server")
        gone = watch.state
        assert gone.snapshot is not None
        seen = TopView(
            address=web.url,
            order=TopOrder.IN,
            now_ms=gone.problem_since_ms + 7000,
            snapshot=gone.snapshot,
            problem=gone.problem,
            problem_since_ms=gone.problem_since_ms,
        )
        lines = shown(seen, 300, 40)
        assert lines[1].startswith("no answer for 7 s: cannot reach http://127.0.0.1:")
        assert [line for line in lines if line.startswith("orders")]
        with served(broker, port):
            wait_until(lambda: watch.state.problem is None, "its return")
    finally:
        watch.close()


def test_a_loop_that_stands_still_needs_attention(
    busy: tuple[Broker, WebServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, web = busy
    monkeypatch.setattr(web_viewer, "LOOP_TIMEOUT_S", 0.2)
    stands, goes_on = threading.Event(), threading.Event()

    def stand_still() -> None:
        stands.set()
        goes_on.wait()

    watch = BrokerWatch(WebSource(WebAddress(web.url)), TopOrder.IN, 0.02, lambda: None)
    broker.services.loop.call_soon_threadsafe(stand_still)
    stands.wait()
    try:
        overview = WebAddress(web.url).get("/api/overview")
        seen = watch.look()
    finally:
        goes_on.set()
    assert overview["attention"][0]["title"] == "The broker does not respond"
    assert isinstance(seen, Exception)
    assert "did not respond" in str(seen)


# --- what cannot be shown ---------------------------------------------------------------------------------------------


class _Odd(http.server.BaseHTTPRequestHandler):
    """Answers as its class says."""

    status, body = 200, b"{}"

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b"<html>", "does not answer like a stratalog broker"),
        (200, b"[]", "does not answer like a stratalog broker"),
        (200, b"{}", "does not answer like a broker of this version"),
        (200, b"[" * 100_000, "does not answer like a stratalog broker"),
        (200, b'{"atMs": NaN}', "does not answer like a stratalog broker"),
        (404, b"", "answers with status 404"),
        (503, b'{"error": "the broker is\\u001b[2J stopping"}', "answers with status 503: the broker is"),
        (401, b"", "asks for a user of the broker"),
    ],
)
def test_what_is_no_broker_is_one_line(capsys: Captured, status: int, body: bytes, said: str) -> None:
    handler = type("Handler", (_Odd,), {"status": status, "body": body})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            assert run(["top", "--once", "--web", f"127.0.0.1:{server.server_port}"]) == 2
        finally:
            server.shutdown()
            thread.join()
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert error.rstrip("\n").isprintable()


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("overview", lambda found: found["requests"][0].pop("p50Ms")),
        ("overview", lambda found: found["rates"].append({"bytesIn": float("nan")})),
        ("overview", lambda found: found["numbers"].update(records="many")),
        ("overview", lambda found: found.update(disks=None)),
        ("overview", lambda found: found.update(attention=[["text"]])),
        ("topics", lambda found: found["topics"][0].update(name=7)),
        ("groups", lambda found: found["groups"][0].update(lag=None)),
    ],
)
def test_rows_of_another_version_are_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    busy: tuple[Broker, WebServer],
    path: str,
    change: Callable[[dict[str, Any]], object],
) -> None:
    get = WebAddress.get

    def changed(self: WebAddress, asked: str, fields: Mapping[str, object] | None = None) -> dict[str, Any]:
        found = get(self, asked, fields)
        if asked == f"/api/{path}":
            change(found)
        return found

    monkeypatch.setattr(WebAddress, "get", changed)
    assert run(["top", "--once", "--web", busy[1].url]) == 2
    assert "does not answer like a broker of this version" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--interval", "0"), "--interval 0: expected 200ms to 1h"),
        (("--interval", "often"), "expected a number and a unit"),
        (("--web", "ftp://h:1"), "--web ftp://h:1: expected HOST:PORT"),
        (("--web", "h:1:2"), "expected HOST:PORT"),
        (("--sort", "size"), "size"),
        (("--web", "127.0.0.1:1"), "cannot reach http://127.0.0.1:1/api/overview"),
        (("--command-config", "/nowhere"), "--command-config /nowhere"),
    ],
)
def test_wrong_arguments_are_said(capsys: Captured, arguments: tuple[str, ...], said: str) -> None:
    assert run(["top", "--once", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_the_user_of_a_file_is_who_asks(tmp_path: Path) -> None:
    asked: list[str] = []

    class Handler(_Odd):
        status = 404

        def do_GET(self) -> None:
            asked.append(self.headers["Authorization"])
            super().do_GET()

    (tmp_path / "client.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=org.apache.kafka.common.security."
        'plain.PlainLoginModule required username="alice" password="a:b";\n'
    )
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request).start()
        web = f"127.0.0.1:{server.server_port}"
        assert run(["top", "--once", "--web", web, "--command-config", str(tmp_path / "client.properties")]) == 2
    (scheme, _, token) = asked[0].partition(" ")
    assert (scheme, b64decode(token)) == ("Basic", b"alice:a:b")


# --- a terminal -------------------------------------------------------------------------------------------------------


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, arguments: list[str], columns: int = 100, lines: int = 30) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm-256color"
            os.execv(sys.executable, [sys.executable, "-m", "stratalog", *arguments])
        self.resize(columns, lines)
        self.text = ""

    def resize(self, columns: int, lines: int) -> None:
        ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, said: str) -> None:
        """Read until the screen has been drawn with this; what was drawn before does not count."""
        found = ""

        def read() -> bool:
            nonlocal found
            if select.select([self.fd], [], [], 0.1)[0]:
                found += os.read(self.fd, 65536).decode(errors="replace")
            return said in found

        wait_until(read, f"{said!r} on the screen", every=0)
        self.text = found

    def press(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def end(self) -> int:
        """Read what is left, and return the exit code."""
        try:
            while data := os.read(self.fd, 65536):
                self.text += data.decode(errors="replace")
        except OSError:  # the other end is closed
            os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_keys_and_sizes_change_the_screen_and_q_leaves_the_terminal_as_it_was(busy: tuple[Broker, WebServer]) -> None:
    terminal = Terminal(["top", "--web", busy[1].url, "--interval", "200ms"])
    terminal.until("TOPIC by in")
    terminal.press("l")
    terminal.until("TOPIC by local")
    terminal.press("p")
    terminal.until("PAUSED")
    terminal.press("p\x1b[A")
    terminal.resize(40, 12)
    terminal.until("REQUEST")
    terminal.press("q")
    assert terminal.end() == 0
    assert terminal.text.rstrip().endswith(("\x1b[?1049l\x1b[?25h", "\x1b[?25h\x1b[?1049l"))


def test_a_terminal_waits_for_a_broker_that_is_not_there(busy: tuple[Broker, WebServer]) -> None:
    port = free_port()
    terminal = Terminal(["top", "--web", f"127.0.0.1:{port}", "--interval", "200ms"])
    terminal.until("no answer for")
    with served(busy[0], port):
        terminal.until("orders")
    terminal.until("no answer for")
    terminal.press("\x03")
    assert terminal.end() == 0


def test_a_signal_to_end_leaves_the_terminal_as_it_was(busy: tuple[Broker, WebServer]) -> None:
    terminal = Terminal(["top", "--web", busy[1].url, "--interval", "200ms"])
    terminal.until("TOPIC by in")
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.end() == 128 + signal.SIGTERM
    assert terminal.text.rstrip().endswith(("\x1b[?1049l\x1b[?25h", "\x1b[?25h\x1b[?1049l"))
