"""The application of the web server: the console, its JSON API, metrics and health.

    GET /                    the console; see `pages.catalog` for its pages
    GET /api/...             the same pages as JSON, and changes by POST; /api/openapi.json describes them
    GET /api/tier-status     why segments are still local, or not yet remote
    GET /metrics             metrics for Prometheus
    GET /health/live         whether the broker's event loop responds
    GET /health/ready        whether all clients are served

Handlers of pages are plain functions: starlette runs them on threads, so none waits for another.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterable

from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import CollectorRegistry
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from stratalog.broker import BrokerServices
from stratalog.engine.tiering import status_json, tier_statuses
from stratalog.web import health
from stratalog.web.declarations import Console
from stratalog.web.desk import Desk
from stratalog.web.gate import Gate, NoLoginError
from stratalog.web.headers import SafeHeaders
from stratalog.web.hosts import OwnHosts
from stratalog.web.metrics_text import BrokerCollector

#: Smaller responses are not compressed.
_GZIP_FROM_BYTES = 4096
_STATIC = {
    "console.css": "text/css",
    "theme.js": "text/javascript",
    "console.js": "text/javascript",
    "charts.js": "text/javascript",
}
_UNAVAILABLE = 503


def make_app(broker: BrokerServices, console: Console, host: str = "127.0.0.1", hosts: Iterable[str] = ()) -> Starlette:
    """Return the application of one broker, for any ASGI server that listens on `host`.

    `hosts` are its other names.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BrokerCollector(broker))
    ProcessCollector(registry=registry)
    gate = Gate(broker, host)
    desk = Desk(console, gate)

    def metrics(request: Request) -> Response:
        try:
            gate.check_metrics(request)
        except NoLoginError:
            return _no_login()
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        try:
            return Response(encode(registry), headers={"Content-Type": content_type})
        except TimeoutError:
            return PlainTextResponse("the broker does not respond\n", status_code=_UNAVAILABLE)

    async def live(request: Request) -> Response:  # noqa: ARG001
        return await health.live(broker)

    async def ready(request: Request) -> Response:  # noqa: ARG001
        return await health.ready(broker)

    def tier_status(request: Request) -> Response:
        try:
            viewer = gate.viewer(request)
        except NoLoginError:
            return _no_login()
        topic = request.query_params.get("topic")
        statuses = tier_statuses(broker.logs, topic=topic)
        if broker.access is not None:
            seen = viewer.allowed_topics(status.topic for status in statuses)
            statuses = [status for status in statuses if status.topic in seen]
        return JSONResponse(status_json(statuses))

    return Starlette(
        routes=[
            Route("/metrics", metrics),
            Route("/health", ready),
            Route("/health/live", live),
            Route("/health/ready", ready),
            Route("/api/tier-status", tier_status),
            *(Route(f"/static/{name}", _file(name, kind)) for name, kind in _STATIC.items()),
            *desk.routes(),
        ],
        exception_handlers=desk.exception_handlers(),
        middleware=[
            Middleware(SafeHeaders),
            Middleware(OwnHosts, names=hosts),
            Middleware(GZipMiddleware, minimum_size=_GZIP_FROM_BYTES),
        ],
    )


def _no_login() -> Response:
    return PlainTextResponse(
        "a login is needed: a user of the broker (Basic), or for /metrics stratalog.web.metrics.token (Bearer)\n",
        status_code=401,
        headers={"WWW-Authenticate": 'Basic realm="stratalog", charset="UTF-8"'},
    )


def _file(name: str, kind: str):  # type: ignore[no-untyped-def]
    content = (importlib.resources.files("stratalog.web") / "static" / name).read_bytes()

    def serve(request: Request) -> Response:  # noqa: ARG001
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    return serve
