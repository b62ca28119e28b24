"""A token endpoint on loopback that answers what a test says, and keeps what it was asked."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


def unsigned_token(**claims: Any) -> str:
    """Return a token that a client takes; its signature is none. A claim that is None is left out."""
    now = int(time.time())
    body = {"sub": "billing", "iat": now, "exp": now + 600, **claims}
    kept = {name: value for name, value in body.items() if value is not None}
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "x"}, kept))
    return b".".join((*parts, b"signature")).decode()


def granted(**claims: Any) -> tuple[int, str]:
    return 200, json.dumps({"access_token": unsigned_token(**claims)})


class TokenEndpoint:
    """`answer` gives status and body for each request; `requests` has their headers and bodies."""

    def __init__(self, answer: Callable[[], tuple[int, str]] = granted) -> None:
        self.answer = answer
        self.requests: list[tuple[dict[str, str], str]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint.requests.append((dict(self.headers), body))
                status, text = endpoint.answer()
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False  # the end waits for them, and so for their sockets
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"

    def __enter__(self) -> TokenEndpoint:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
