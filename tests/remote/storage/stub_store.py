"""An HTTP server that real clients of S3, GCS and Azure speak to: it keeps objects by path, and fails when it is
asked to.

It checks no signature and knows as much of the protocols as the tests need: PUT, GET with ranges and HEAD of an object,
and the parts of an S3 upload.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def error(status: int, code: str, message: str = "no") -> Answer:
    """As the stores spell one."""
    return Answer(status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode())


class StubStore:
    """A context manager. `fail` is asked for each request, "PUT /bucket/key?query", whether to answer otherwise."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.parts: dict[int, bytes] = {}
        self.requests: list[str] = []
        self.fail: Callable[[str], Answer | None] = lambda _: None
        self._lock = threading.Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with stub._lock:
                    stub.requests.append(f"{self.command} {self.path}")
                    answer = stub.fail(stub.requests[-1]) or stub._answer(self.command, self.path, body, self.headers)
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if "Content-Length" not in answer.headers:
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do  # noqa: N815

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> StubStore:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, method: str, target: str, body: bytes, headers: Any) -> Answer:
        url = urlsplit(target)
        query = parse_qs(url.query, keep_blank_values=True)
        if method == "POST":
            return self._upload(url.path, "uploads" in query)
        if "partNumber" in query:
            self.parts[int(query["partNumber"][0])] = body
            return Answer(200, headers={"ETag": f'"{len(body)}"'})
        if method == "PUT":
            self.objects[url.path] = body
            return Answer(201, headers=self._about(body))
        if "uploadId" in query:
            return Answer(204)
        if url.path not in self.objects:
            return error(404, "NoSuchKey")
        found = self.objects[url.path]
        about, status = self._about(found), 200
        content = found
        if (wanted := headers.get("Range") or headers.get("x-ms-range")) and method == "GET":
            first, last = wanted.removeprefix("bytes=").split("-")
            content = found[int(first) : int(last) + 1]
            about["Content-Range"] = f"bytes {first}-{int(first) + len(content) - 1}/{len(found)}"
            status = 206
        return Answer(status, content, about | {"Content-Length": str(len(content))})

    def _upload(self, path: str, begins: bool) -> Answer:
        if begins:
            return Answer(
                200,
                b"<InitiateMultipartUploadResult><UploadId>one</UploadId></InitiateMultipartUploadResult>",
            )
        self.objects[path] = b"".join(part for _, part in sorted(self.parts.items()))
        return Answer(200, b"<CompleteMultipartUploadResult><ETag>done</ETag></CompleteMultipartUploadResult>")

    def _about(self, body: bytes) -> dict[str, str]:
        return {
            "ETag": f'"{hashlib.md5(body).hexdigest()}"',
            "Last-Modified": "Sat, 01 Nov 2025 00:00:00 GMT",
            "x-ms-version": "2023-11-03",
        }

    def url_and_options(self, kind: str) -> tuple[str, dict[str, str]]:
        """How a store of that kind is opened on this server."""
        options = {"max_retries": "2", "timeout_ms": "5000", "retry_timeout_ms": "5000"}
        if kind == "s3":
            return "s3://bucket/dir", options | {
                "endpoint": self.endpoint,
                "access_key_id": "a",
                "secret_access_key": "b",
            }
        if kind == "az":
            return "az://bucket/dir", options | {
                "endpoint": self.endpoint,
                "account_name": "account",
                "allow_http": "true",
                "account_key": base64.b64encode(b"key").decode(),
            }
        key = {
            "gcs_base_url": self.endpoint,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        return "gs://bucket/dir", options | {"service_account_key": json.dumps(key), "allow_http": "true"}
