"""Common code of the APIs of share states: each partition has its own request and error."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import UUID

from stratalog.broker.share.state_records import ShareKey, StateBatch
from stratalog.errors import KafkaError
from stratalog.util import uuid_from_base64

if TYPE_CHECKING:
    from stratalog.broker.server import RequestContext

_PARTITION = re.compile(r"[+-]?[0-9]{1,20}")
#: Partitions after which other requests get their turn.
_PIECE = 100
_NO_TOPIC = UUID(int=0)


async def answer_share_states(
    ctx: RequestContext,
    request: Any,
    result: str,
    ask: Callable[[ShareKey, Any], Awaitable[Mapping[str, Any] | None]],
    *,
    takes_empty_topics: bool = False,
    **refused: Any,
) -> Any:
    """Respond with the fields that `ask` returns for each partition, or its error and the fields in `refused`.

    A topic without partitions makes the answer empty; with `takes_empty_topics` only that topic is left out.
    """
    topics: dict[UUID | None, dict[int, Any]] = {}
    turn = count()
    if request.group_id and (takes_empty_topics or all(topic.partitions for topic in request.topics)):
        for topic in request.topics:
            if not topic.partitions:
                continue
            answers = topics.setdefault(topic.topic_id, {})
            for asked in topic.partitions:
                if next(turn) % _PIECE == _PIECE - 1:
                    await asyncio.sleep(0)  # other requests get their turn
                key = ShareKey(request.group_id, topic.topic_id or _NO_TOPIC, asked.partition)
                answers[asked.partition] = ctx.make(
                    "PartitionResult", partition=asked.partition, **await _fields(ask, key, asked, refused)
                )
    return ctx.respond(
        results=[
            ctx.make(result, topic_id=topic_id, partitions=tuple(answers.values()))
            for topic_id, answers in topics.items()
        ]
    )


async def _fields(
    ask: Callable[[ShareKey, Any], Awaitable[Mapping[str, Any] | None]],
    key: ShareKey,
    asked: Any,
    refused: Mapping[str, Any],
) -> Mapping[str, Any]:
    try:
        return {"error_code": 0, **(await ask(key, asked) or {})}
    except KafkaError as error:
        return {"error_code": error.code, "error_message": str(error), **refused}


def said_batches(batches: Iterable[Any]) -> tuple[StateBatch, ...]:
    """Return the batches of a request."""
    return tuple(
        [
            StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in batches
        ]
    )


def is_share_key(text: str) -> bool:
    """Return whether a text has the form of `str(ShareKey)`: group, topic id and partition."""
    group_id, topic_id, partition = ("", "", *text.rsplit(":", 2))[-3:]
    if not group_id.strip() or not _PARTITION.fullmatch(partition) or not -(2**31) <= int(partition) < 2**31:
        return False
    try:
        uuid_from_base64(topic_id)
    except ValueError:
        return False
    return True
