"""What a query notes of its batches comes back, however long the list, and the newest note of each query counts."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from stratalog.errors import UsageError
from stratalog.spark.sink.batch_marks import BatchMark, TaskTransaction, decode_marks, encode_mark
from stratalog.wire.client.transactions import GroupOffset

TRANSACTIONS = st.lists(
    st.builds(TaskTransaction, st.integers(0, 10**6), st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1)),
    unique_by=lambda each: each.task,
    max_size=400,
).map(lambda found: tuple(sorted(found, key=lambda each: each.task)))


@given(st.integers(0, 2**31), st.sampled_from(["", "3f2a-77"]), TRANSACTIONS)
def test_a_mark_comes_back_from_what_was_committed(
    batch: int, query: str, transactions: tuple[TaskTransaction, ...]
) -> None:
    mark = BatchMark(batch, query, False, transactions)
    committed = encode_mark(mark, "t", 10)
    assert decode_marks(committed) == {query: mark}
    assert all(len(each.metadata) <= 4096 for each in committed.values())


def test_done_comes_behind_decided_and_other_commits_of_the_group_are_no_marks() -> None:
    decided = BatchMark(7, "q", False, (TaskTransaction(0, 5, 1),))
    done = BatchMark(7, "q", True)
    committed = encode_mark(decided, "a", 1) | encode_mark(done, "b", 1) | {("c", 0): GroupOffset(9, "a note")}
    assert decode_marks(committed) == {"q": done}
    later = encode_mark(BatchMark(8, "q", False), "b", 1)
    assert decode_marks(committed | later)["q"].batch == 8


def test_each_query_has_its_own_mark() -> None:
    committed = encode_mark(BatchMark(9, "old", True), "a", 1) | encode_mark(BatchMark(0, "new", True), "b", 1)
    assert {query: mark.batch for query, mark in decode_marks(committed).items()} == {"old": 9, "new": 0}


def test_a_list_that_lacks_a_part_is_an_error() -> None:
    mark = BatchMark(1, "q", False, tuple(TaskTransaction(n, 10**12 + n, 3) for n in range(500)))
    committed = encode_mark(mark, "t", 10)
    assert len(committed) > 1
    with pytest.raises(ValueError, match=r"has \d of \d parts"):
        decode_marks(dict(list(committed.items())[1:]))


def test_more_tasks_than_a_topic_can_name_are_refused() -> None:
    mark = BatchMark(1, "q", False, tuple(TaskTransaction(n, 10**12 + n, 3) for n in range(2000)))
    with pytest.raises(UsageError, match="coalesce"):
        encode_mark(mark, "t", 1)
