"""A schema registry for tests: the part of Confluent's API that readers of schemas use, over HTTP."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


@contextmanager
def schema_registry(
    schemas: Mapping[int, Mapping[str, Any]],
    subjects: Mapping[str, Mapping[str, Any]] | None = None,
    login: str | None = None,
) -> Iterator[str]:
    """Give the URL of a registry with schemas by id, and by "subject/version". It wants `login` (user:password)."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = None if login is None else f"Basic {base64.b64encode(login.encode()).decode()}"
            if wanted is not None and self.headers.get("Authorization") != wanted:
                return self.answer(401, {"error_code": 40101, "message": "Unauthorized"})
            parts = urlsplit(self.path)
            words = parts.path.strip("/").split("/")
            found: Mapping[str, Any] | None = None
            if words[:2] == ["schemas", "ids"]:
                found = schemas.get(int(words[2]))
            elif words[0] == "subjects" and subjects is not None:
                found = subjects.get(f"{words[1]}/{words[3]}")
            if found is None:
                return self.answer(404, {"error_code": 40403, "message": "Schema not found"})
            reported = {key: value for key, value in found.items() if key != "serialized"}
            if parts.query == "format=serialized":
                reported["schema"] = found["serialized"]
            return self.answer(200, reported)

        def answer(self, status: int, reported: Any) -> None:
            body = json.dumps(reported).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        where = f"127.0.0.1:{server.server_address[1]}"
        yield f"http://{where}" if login is None else f"http://{login}@{where}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
