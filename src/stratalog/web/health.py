"""Liveness and readiness of a broker, for service managers and load balancers.

`/health/live` fails when the broker's event loop does not respond: restart it. `/health/ready` also fails while groups
or transactions are loading after a start: their clients would get errors, and a restart does not help. The web server's
own event loop handles both, so that slow pages do not delay them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import JSONResponse

from stratalog.broker import BrokerServices

#: How long a probe waits for the loop, less than the usual timeout of probes.
_LOOP_TIMEOUT_S = 2.0
_UNAVAILABLE = 503


async def live(broker: BrokerServices) -> JSONResponse:
    """Return 200 if the broker's event loop responds, else 503."""
    return await _answer(broker, lambda: ("live", {}))


async def ready(broker: BrokerServices) -> JSONResponse:
    """Return 200 if all clients are served, else 503 and what is missing."""
    return await _answer(broker, lambda: _readiness(broker))


def _readiness(broker: BrokerServices) -> tuple[str, Mapping[str, Any]]:
    loading = [
        name
        for name, coordinator in (("groups", broker.groups), ("transactions", broker.transactions))
        if not coordinator.loading.is_over
    ]
    offline = {str(path): reason for path, reason in broker.logs.dirs.offline.items()}
    return "loading" if loading else "ready", {"loading": loading, "offline_directories": offline}


async def _answer(broker: BrokerServices, look: Callable[[], tuple[str, Mapping[str, Any]]]) -> JSONResponse:
    async def look_on_loop() -> tuple[str, Mapping[str, Any]]:
        return look()

    asked = asyncio.run_coroutine_threadsafe(look_on_loop(), broker.loop)
    try:
        status, details = await asyncio.wait_for(asyncio.wrap_future(asked), _LOOP_TIMEOUT_S)
    except TimeoutError:
        status, details = "stalled", {"reason": f"the broker's loop did not answer within {_LOOP_TIMEOUT_S:.0f} s"}
    code = 200 if status in ("live", "ready") else _UNAVAILABLE
    return JSONResponse({"status": status, **details}, status_code=code, headers={"Cache-Control": "no-store"})
