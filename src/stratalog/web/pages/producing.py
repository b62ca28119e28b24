"""Produce one record: by the broker's own Produce API, so that access rules, checks and quotas are those of clients."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from stratalog.broker import BrokerServices
from stratalog.broker.apis import load_apis
from stratalog.broker.quotas import QuotaThrottle
from stratalog.broker.security import Peer
from stratalog.broker.server import ApiKey, Chunk, Deferred
from stratalog.errors import KafkaError
from stratalog.records import Record, build_batch
from stratalog.web.declarations import Console, NotThatValueError
from stratalog.web.fields import choice, whole, words
from stratalog.web.viewer import ConsoleViewer, check_code
from stratalog.wire import (
    INT16,
    make_message,
    message_module,
    read_message,
    request_class,
    response_class,
    write_message,
)

_VERSION: Final = 9
_TIMEOUT_MS: Final = 3000

FIELDS = (
    whole("partition", 0, 0, 1_000_000, help="The partition."),
    words("key", longest=100_000, help="The key as text; empty: see below."),
    words("value", longest=2_000_000, help="The value as text."),
    words("headers", longest=100_000, help="NAME=VALUE, one a line."),
    choice("form", ("text", "hex"), help="How key and value are written."),
    choice("null_key", ("yes", "no"), help="An empty key is null."),
    choice("tombstone", ("no", "yes"), help="The value is null."),
)


class _OneRequest:
    """A connection of one request, as the Produce API sees it."""

    def __init__(self, broker: BrokerServices, peer: Peer, loop: asyncio.AbstractEventLoop) -> None:
        self.broker = broker
        self.peer = peer
        self.answer: asyncio.Future[bytes] = loop.create_future()

    def respond(self, chunks: Sequence[Chunk]) -> None:
        if not self.answer.done():
            self.answer.set_result(b"".join(bytes(chunk) for chunk in chunks))  # type: ignore[arg-type]

    def defer(self, deferred: Deferred) -> None:
        """No one leaves this page."""

    def throttle(self, throttle: QuotaThrottle) -> None:
        """Let the next request of the page come: it counts for the quota, and there is no connection to mute."""

    def reject(self, why: object) -> None:
        if not self.answer.done():
            self.answer.set_exception(KafkaError(str(why)))


def produce(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> tuple[str, str]:
    """Append one record to a partition."""
    topic, number = values["topic"], values["partition"]
    viewer.check_topic(topic)
    key: bytes | None = _bytes(values, "key")
    value = None if values["tombstone"] == "yes" else _bytes(values, "value")
    if not key and values["null_key"] == "yes":
        key = None
    record = Record(0, viewer.broker.clock.now_ms(), key, value, tuple(_headers(values["headers"])))
    module = message_module(ApiKey.PRODUCE, _VERSION, "request")
    partition = make_message(module.PartitionProduceData, {"index": number, "records": build_batch([record])})
    data = make_message(module.TopicProduceData, {"name": topic, "partition_data": [partition]})
    request = make_message(
        request_class(ApiKey.PRODUCE, _VERSION),
        {"transactional_id": None, "acks": -1, "timeout": _TIMEOUT_MS, "topic_data": [data]},
    )
    client_id = b"stratalog-console"
    head = INT16.pack(ApiKey.PRODUCE) + INT16.pack(_VERSION) + bytes(4) + INT16.pack(len(client_id)) + client_id
    frame = bytearray(head + b"\0" + write_message(request))

    async def send() -> bytes:
        loop = viewer.broker.loop
        caller = _OneRequest(viewer.broker, viewer.peer(), loop)
        make = load_apis()[ApiKey.PRODUCE].frames
        assert make is not None
        answer = make(caller).answer(_VERSION, 0, memoryview(frame), len(head) + 1)
        if isinstance(answer, Deferred):
            return await caller.answer
        return b"".join(bytes(chunk) for chunk in answer)  # type: ignore[arg-type]

    told = viewer.wait_for(send())
    # size, correlation id and an empty set of tagged fields come first
    response, _ = read_message(response_class(ApiKey.PRODUCE, _VERSION), told, 9)
    result = response.responses[0].partition_responses[0]
    try:
        check_code(int(result.error_code), result.error_message)
    except KafkaError as error:
        raise NotThatValueError("value", str(error)) from error
    done = f"appended to {topic}-{number} at offset {result.base_offset}"
    console.events.note("info", "console", f"{viewer.principal}: one record {done}")
    return f"/topics/{topic}/messages?partition={number}", done


def _bytes(values: Mapping[str, Any], name: str) -> bytes:
    text = values[name]
    if values["form"] == "text":
        return str(text).encode()
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise NotThatValueError(name, "expected bytes in hexadecimal, such as 00 ff 1a") from None


def _headers(text: str) -> list[tuple[str, bytes]]:
    found = []
    for line in text.splitlines():
        if not line.strip():
            continue
        name, separator, value = line.partition("=")
        if not separator:
            raise NotThatValueError("headers", f"expected NAME=VALUE, not {line[:50]!r}")
        found.append((name, value.encode()))
    return found
