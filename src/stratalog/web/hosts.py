"""Reject requests with a foreign host name.

A page of any site can resolve its own name to this machine (DNS rebinding), and a browser here then reads the console
for it. Such a request has that name in its Host header. Addresses cannot be abused that way, nor can `localhost`, the
machine's own name and the configured ones (`stratalog.web.hosts`).
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_MISDIRECTED = 421


class OwnHosts:
    """ASGI middleware that responds 421 unless the Host header is an address or one of the names."""

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app = app
        self._names = {name.lower().rstrip(".") for name in (*names, "localhost", socket.gethostname())}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
            if not all(self._is_own(host) for host in given):
                refusal = PlainTextResponse(
                    "not served under this name; stratalog.web.hosts lists the names of the web server\n",
                    status_code=_MISDIRECTED,
                )
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_own(self, host: str) -> bool:
        name = host_name(host)
        return name in self._names or name.endswith(".localhost") or is_address(name)


def host_name(host: str) -> str:
    """Return a Host header without its port, in lower case."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, separator, port = host.rpartition(":")
    return (name if separator and port.isdigit() else host).rstrip(".")


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
