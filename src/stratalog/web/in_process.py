"""Call an API that reads frames of a connection without a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from stratalog.broker import BrokerServices
from stratalog.broker.quotas import QuotaThrottle
from stratalog.broker.security import Peer
from stratalog.broker.server import Api, Chunk, Deferred
from stratalog.errors import KafkaError
from stratalog.wire import read_message, request_frame, response_class

CLIENT_ID = "stratalog-console"
_SIZE_AND_CORRELATION = 8


class _OneRequest:
    """The connection of one request for an API."""

    def __init__(self, broker: BrokerServices, peer: Peer, loop: asyncio.AbstractEventLoop) -> None:
        self.broker = broker
        self.peer = peer
        self.answer: asyncio.Future[bytes] = loop.create_future()

    def respond(self, chunks: Sequence[Chunk]) -> None:
        if not self.answer.done():
            self.answer.set_result(_joined(chunks))

    def defer(self, deferred: Deferred) -> None:
        """Do nothing: the page stays."""

    def throttle(self, throttle: QuotaThrottle) -> None:
        """Do nothing: the quota counts the request, but there is no connection to mute."""

    def reject(self, why: object) -> None:
        if not self.answer.done():
            self.answer.set_exception(KafkaError(str(why)))


async def ask_by_frame(broker: BrokerServices, api: Api, version: int, peer: Peer, request: Any) -> Any:
    """Return the response to a request, on the loop's thread. Raises KafkaError."""
    make = api.frames
    assert make is not None
    frame, position = request_frame(api.key, version, CLIENT_ID, request)
    caller = _OneRequest(broker, peer, broker.loop)
    answer = make(caller).answer(version, 0, memoryview(bytearray(frame)), position)
    reply = await caller.answer if isinstance(answer, Deferred) else _joined(answer)
    cls = response_class(api.key, version)
    response, _ = read_message(cls, reply, _SIZE_AND_CORRELATION + int(cls.__flexible__))
    return response


def _joined(chunks: Sequence[Chunk]) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]
