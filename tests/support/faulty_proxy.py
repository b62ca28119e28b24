"""An HTTP server in front of an object store's, that spoils answers on the wire.

    with FaultyProxy(s3.endpoint) as proxy:
        store = ObjectStore.from_url(url, {**s3.options, "endpoint": proxy.endpoint})
        proxy.spoil(shortened, lambda request: request.method == "GET")

Requests and answers go through unchanged but for what a rule spoils; `Host` too, which clients sign.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import urlsplit

_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding"})


@dataclass(frozen=True)
class Request:
    method: str
    path: str


@dataclass(frozen=True)
class Answer:
    """`sent` bytes of the body are sent before the connection ends; None: all of them."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    sent: int | None = None


Fault = Callable[[Answer], Answer]
Wanted = Callable[[Request], bool]


def shortened(answer: Answer) -> Answer:
    """The connection ends in the middle of the body."""
    return replace(answer, sent=len(answer.body) // 2)


def flipped(answer: Answer) -> Answer:
    """One bit in the middle of the body is another."""
    body = bytearray(answer.body)
    if body:
        body[len(body) // 2] ^= 1
    return replace(answer, body=bytes(body))


def slow_down(answer: Answer) -> Answer:
    """503 SlowDown, with the time after which to come again."""
    return _refusal(503, "SlowDown", "Please reduce your request rate.", {"Retry-After": "1"})


def too_many(answer: Answer) -> Answer:
    """429, as Google and Azure throttle."""
    return _refusal(429, "TooManyRequests", "The rate limit was exceeded.", {"Retry-After": "1"})


def skewed(answer: Answer) -> Answer:
    """What S3 says to a machine whose clock is wrong."""
    text = "The difference between the request time and the current time is too large."
    return _refusal(403, "RequestTimeTooSkewed", text, {})


def _refusal(status: int, code: str, message: str, headers: Mapping[str, str]) -> Answer:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    return Answer(status, {**headers, "Content-Type": "application/xml", "Content-Length": str(len(body))}, body)


@dataclass
class _Rule:
    fault: Fault
    wanted: Wanted
    times: int | None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def takes(self, request: Request) -> bool:
        with self.lock:
            if self.times == 0 or not self.wanted(request):
                return False
            if self.times is not None:
                self.times -= 1
            return True


class FaultyProxy:
    """Spoils by the first rule that wants a request. Thread-safe."""

    def __init__(self, endpoint: str) -> None:
        self._behind = urlsplit(endpoint).netloc
        self._rules: list[_Rule] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="faulty-proxy", daemon=True)
        #: How many answers were spoiled.
        self.spoiled = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def spoil(self, fault: Fault, wanted: Wanted = lambda _: True, times: int | None = None) -> None:
        """Spoil the answers to the next `times` (None: all) requests that are wanted."""
        self._rules.append(_Rule(fault, wanted, times))

    def heal(self) -> None:
        self._rules.clear()

    def __enter__(self) -> FaultyProxy:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, request: Request, headers: Mapping[str, str], body: bytes) -> Answer:
        rule = next((rule for rule in list(self._rules) if rule.takes(request)), None)
        connection = HTTPConnection(self._behind, timeout=60)
        try:
            connection.request(request.method, request.path, body, dict(headers))
            response = connection.getresponse()
            kept = {name: value for name, value in response.getheaders() if name.lower() not in _HOP_BY_HOP}
            answer = Answer(response.status, kept, response.read())
        finally:
            connection.close()
        if rule is None:
            return answer
        self.spoiled += 1
        return rule.fault(answer)

    def _handler(proxy) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
                answer = proxy._answer(Request(self.command, self.path), headers, body)
                self.send_response_only(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if "content-length" not in {name.lower() for name in answer.headers}:
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body[: answer.sent])
                self.close_connection = answer.sent is not None

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        return Handler
