"""The application of the web address.

GET /                    the page
GET /metrics             metrics for Prometheus
GET /health/live         whether the broker's loop turns
GET /health/ready        whether clients of every kind are served
GET /api/tier-status     why segments are still local, or not yet remote
GET /api/topics          topics and partitions with their sizes in both tiers

Everything is read-only. Handlers are plain functions: starlette runs them on threads, so that none waits for another.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client.exposition import choose_encoder
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
from stratalog.web.hosts import OwnHosts
from stratalog.web.metrics_text import BrokerCollector
from stratalog.web.overview import overview

#: The page loads nothing from elsewhere.
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
#: Smaller answers are not worth it.
_GZIP_FROM_BYTES = 4096
_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}


def make_app(broker: BrokerServices, hosts: Iterable[str] = ()) -> Starlette:
    """Return the application of one broker, for any ASGI server. `hosts` are further names that it is reached by."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BrokerCollector(broker))

    def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        try:
            return Response(encode(registry), headers={"Content-Type": content_type})
        except TimeoutError:
            return PlainTextResponse("the broker does not answer\n", status_code=503)

    def tier_status(request: Request) -> Response:
        topic = request.query_params.get("topic")
        return _json(status_json(tier_statuses(broker.logs, topic=topic)))

    def topics(request: Request) -> Response:  # noqa: ARG001
        return _json(overview(broker))

    return Starlette(
        routes=[
            *(Route(path, _file(name, kind)) for path, (name, kind) in _FILES.items()),
            Route("/metrics", metrics),
            Route("/health/live", lambda _: health.live(broker)),
            Route("/health/ready", lambda _: health.ready(broker)),
            Route("/api/tier-status", tier_status),
            Route("/api/topics", topics),
        ],
        middleware=[
            Middleware(OwnHosts, names=hosts),
            Middleware(GZipMiddleware, minimum_size=_GZIP_FROM_BYTES),
        ],
    )


def _json(value: Any) -> Response:
    return JSONResponse(value, headers={"Cache-Control": "no-store"})


def _file(name: str, kind: str) -> Callable[[Request], Response]:
    content = (importlib.resources.files("stratalog.web") / "static" / name).read_bytes()

    def serve(request: Request) -> Response:  # noqa: ARG001
        return Response(content, media_type=kind, headers=_PAGE_HEADERS)

    return serve
