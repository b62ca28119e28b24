"""A query's progress, stored with its data in the offsets of a consumer group without members.

Before the transactions of a batch are committed, the mark "decided", which lists them, is committed. The mark "done"
follows afterwards. A task that finds "decided" commits the transactions again: any process that knows the producer id
and epoch may commit a transaction. Between the two marks nothing else begins under these transactional ids.

    decided|<batch>|<query>|<chunk> of <chunks>|<task>:<producer id>:<epoch>,...        numbers in base 36
    done|<batch>|<query>|1 of 1|

Marks are stored at partitions 0, 1, ... of one topic of the query, as many as the list needs. The committed offset is
the batch's number. All chunks of a mark are one commit. `<query>` is Spark's id of a stream, kept in its checkpoint. A
stream that starts over at the same checkpoint location counts its batches from 0, independently of earlier ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from stratalog.errors import UsageError
from stratalog.wire.client import GroupOffset, TopicPartition

#: Below the default of `offset.metadata.max.bytes`.
_CHUNK_CHARACTERS: Final = 4000
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_MARK: Final = re.compile(r"(decided|done)\|(\d+)\|([^|]*)\|(\d+) of (\d+)\|(.*)")


@dataclass(frozen=True, slots=True)
class TaskTransaction:
    task: int
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class BatchMark:
    """`transactions` are to be committed; a batch that is done has none."""

    batch: int
    query: str
    is_done: bool
    transactions: tuple[TaskTransaction, ...] = ()


def encode_mark(mark: BatchMark, topic: str, partitions: int) -> dict[TopicPartition, GroupOffset]:
    """Return the offsets to commit. Raises UsageError if the topic has too few partitions for so many tasks."""
    chunks = [""]
    for each in mark.transactions:
        entry = ":".join(_base36(number) for number in (each.task, each.producer_id, each.epoch))
        if len(chunks[-1]) + len(entry) + 100 > _CHUNK_CHARACTERS:
            chunks.append("")
        chunks[-1] += f",{entry}" if chunks[-1] else entry
    if len(chunks) > partitions:
        raise UsageError(
            f"{len(mark.transactions)} tasks write at once, more than the marks of topic {topic} with {partitions}"
            " partitions can name: coalesce() the DataFrame to fewer partitions"
        )
    head = f"{'done' if mark.is_done else 'decided'}|{mark.batch}|{mark.query}"
    return {
        (topic, number): GroupOffset(mark.batch, f"{head}|{number + 1} of {len(chunks)}|{chunk}")
        for number, chunk in enumerate(chunks)
    }


def decode_marks(committed: Mapping[TopicPartition, GroupOffset]) -> dict[str, BatchMark]:
    """Return the newest mark of each query among a group's commits. Raises ValueError for one that lacks a part."""
    parts: dict[tuple[str, int, bool], dict[int, str]] = {}
    wanted: dict[tuple[str, int, bool], int] = {}
    for each in committed.values():
        match = _MARK.fullmatch(each.metadata)
        if match is None:
            continue
        key = match[3], int(match[2]), match[1] == "done"
        parts.setdefault(key, {})[int(match[4])] = match[6]
        wanted[key] = int(match[5])
    newest = {query: (batch, is_done) for query, batch, is_done in sorted(parts)}  # done sorts after decided
    found = {}
    for query, (batch, is_done) in newest.items():
        chunks = parts[query, batch, is_done]
        if len(chunks) != wanted[query, batch, is_done]:
            raise ValueError(f"the mark of batch {batch} has {len(chunks)} of {wanted[query, batch, is_done]} parts")
        found[query] = BatchMark(batch, query, is_done, tuple(_transactions(chunks.values())))
    return found


def is_of(committed: GroupOffset, mark: BatchMark) -> bool:
    """Return whether a commit is a part of this mark."""
    match = _MARK.fullmatch(committed.metadata)
    return match is not None and (int(match[2]), match[3], match[1] == "done") == (
        mark.batch,
        mark.query,
        mark.is_done,
    )


def _transactions(chunks: Iterable[str]) -> list[TaskTransaction]:
    entries = [entry for chunk in chunks if chunk for entry in chunk.split(",")]
    found = [TaskTransaction(*(int(number, 36) for number in entry.split(":"))) for entry in entries]
    return sorted(found, key=lambda each: each.task)


def _base36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
        if not number:
            return digits
