"""The web server of a broker, with its own thread and event loop, so that it never delays a fetch.

It listens on the given address only. Slow or many clients are limited: at most `CONNECTIONS_MAX` are connected,
`ADDRESS_CONNECTIONS_MAX` of them from one address. Further connections are closed at once, and each is closed after
`CONNECTION_S`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from types import TracebackType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from stratalog.broker import BrokerServices
from stratalog.broker.server import ListenAddress, bind
from stratalog.errors import UsageError
from stratalog.util import join_host_port
from stratalog.web.app import make_app
from stratalog.web.declarations import Console, SchemaReader
from stratalog.web.events import EventKeeper
from stratalog.web.sampler import RateSampler

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 64
#: Leaves room for health checks and other clients.
ADDRESS_CONNECTIONS_MAX = 48
CONNECTION_S = 30.0
#: Between two requests of a connection.
_IDLE_S = 5
_REQUEST_HEAD_BYTES_MAX = 16 * 1024
_BACKLOG = 64
_THIS_MACHINE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


class WebServer:
    """Serves from `start` until `close`. The constructor binds: UsageError for an unusable address."""

    def __init__(self, address: ListenAddress) -> None:
        self._socket = bind(address, _BACKLOG, "the console (--web)")
        host, port = address.host, self._socket.getsockname()[1]
        self._host = host
        self.url = f"http://{join_host_port(_THIS_MACHINE.get(host, host), port)}/"
        self._console: Console | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self, broker: BrokerServices, schemas: SchemaReader | None = None) -> None:
        """Start serving `broker`. Returns when requests are accepted.

        `schemas` decodes keys and values of records that begin with a schema id.
        """
        bootstrap = join_host_port(_THIS_MACHINE.get(broker.listener.host, broker.listener.host), broker.listener.port)
        self._console = console = Console(broker, RateSampler(broker), EventKeeper(broker.clock), bootstrap, schemas)
        names = [self._host, broker.listener.host, *broker.settings.static["stratalog.web.hosts"]]
        app = make_app(broker, console, self._host, names)
        console.events.attach()
        console.sampler.start()
        proxies = list(broker.settings.static["stratalog.web.proxies"])
        config = uvicorn.Config(
            app,
            proxy_headers=bool(proxies),
            forwarded_allow_ips=proxies,
            http=_BoundedProtocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_IDLE_S,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=_REQUEST_HEAD_BYTES_MAX,
        )
        self._server = server = _Server(config)
        self._thread = threading.Thread(
            target=self._run, args=(server, self._socket), name="stratalog-web", daemon=True
        )
        self._thread.start()
        server.serving.wait()
        if not self._thread.is_alive() and not server.started:
            raise UsageError(f"the web server at {self.url} did not start; see the log")

    @staticmethod
    def _run(server: _Server, listening: socket.socket) -> None:
        try:
            asyncio.run(server.serve(sockets=[listening]))
        except Exception:
            logger.exception("The web server stopped unexpectedly")
        finally:
            server.serving.set()

    def close(self) -> None:
        """Stop serving. Does nothing if it was not started."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join()
        if self._console is not None:
            self._console.sampler.close()
            self._console.events.detach()
            self._console = None
        self._socket.close()

    def __enter__(self) -> WebServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Server(uvicorn.Server):
    """Reports when it serves. Leaves signals to the process when it is not on the main thread."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serving = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.serving.set()


class _BoundedProtocol(H11Protocol):
    """A connection with a limited lifetime, and a limited number of them."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._address: str = (transport.get_extra_info("peername") or ("",))[0]
        of_address = [each for each in self.connections if getattr(each, "_address", None) == self._address]
        if len(self.connections) > CONNECTIONS_MAX or len(of_address) > ADDRESS_CONNECTIONS_MAX:
            # Free its slot at once, before the loop has closed it.
            self.connections.discard(self)
            transport.abort()
            return
        self._end = self.loop.call_later(CONNECTION_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if hasattr(self, "_end"):
            self._end.cancel()
