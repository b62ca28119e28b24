"""Produce one record through the broker's own Produce API, with the access rules, checks and quotas of clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from stratalog.broker.server import ApiKey
from stratalog.errors import KafkaError, NotLeaderOrFollowerError
from stratalog.records import Record, build_batch
from stratalog.web.declarations import Console, NotThatValueError
from stratalog.web.fields import choice, whole, words
from stratalog.web.viewer import ConsoleViewer, check_code

_VERSION: Final = 9
_TIMEOUT_MS: Final = 3000

FIELDS = (
    whole("partition", 0, 0, 1_000_000, help="The partition."),
    words("key", longest=100_000, help="The key as text; empty: see below."),
    words("value", longest=2_000_000, help="The value as text."),
    words("headers", longest=100_000, help="NAME=VALUE, one a line."),
    choice("form", ("text", "hex"), help="Encoding of key and value."),
    choice("null_key", ("yes", "no"), help="An empty key is null."),
    choice("tombstone", ("no", "yes"), help="The value is null."),
)


def produce(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> tuple[str, str]:
    """Append one record to a partition."""
    topic, number = values["topic"], values["partition"]
    viewer.check_topic(topic)
    key: bytes | None = _bytes(values, "key")
    value = None if values["tombstone"] == "yes" else _bytes(values, "value")
    if not key and values["null_key"] == "yes":
        key = None
    record = Record(0, viewer.broker.clock.now_ms(), key, value, tuple(_headers(values["headers"])))
    response = viewer.call(
        ApiKey.PRODUCE,
        _VERSION,
        transactional_id=None,
        acks=-1,
        timeout=_TIMEOUT_MS,
        topic_data=[{"name": topic, "partition_data": [{"index": number, "records": build_batch([record])}]}],
    )
    result = response.responses[0].partition_responses[0]
    try:
        check_code(int(result.error_code), result.error_message)
    except NotLeaderOrFollowerError as error:
        raise NotThatValueError("partition", _led_elsewhere(viewer, topic, number)) from error
    except KafkaError as error:
        raise NotThatValueError("value", str(error)) from error
    done = f"appended to {topic}-{number} at offset {result.base_offset}"
    console.events.note("info", "console", f"{viewer.principal}: one record {done}")
    return f"/topics/{topic}/messages?partition={number}", done


def _led_elsewhere(viewer: ConsoleViewer, topic: str, number: int) -> str:
    leader = viewer.leader(topic, number)
    if leader is None or leader < 0:
        return f"no broker leads {topic}-{number} now"
    return f"broker {leader} leads {topic}-{number}: produce there, or use a client"


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
