"""The transaction index: Kafka's bytes, made with its first entry, and overlap as defined."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import CorruptIndexError
from stratalog.log.index.txn_index import (
    ENTRY_SIZE,
    AbortedTransaction,
    TransactionIndex,
    decode_entries,
    encode_entry,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "dump" / "transactions" / "00000000000000000003.txnindex"


def aborted(first: int, last: int, stable: int | None = None, producer_id: int = 7) -> AbortedTransaction:
    return AbortedTransaction(producer_id, first, last, last + 1 if stable is None else stable)


def test_the_bytes_are_kafkas() -> None:
    data = GOLDEN.read_bytes()
    assert len(data) == 2 * ENTRY_SIZE
    entries = list(decode_entries(data))
    assert entries == [AbortedTransaction(5, 4, 7, 8), AbortedTransaction(6, 12, 15, 16)]
    assert b"".join(map(encode_entry, entries)) == data


def test_the_file_is_made_with_the_first_entry(tmp_path: Path) -> None:
    path = tmp_path / "x.txnindex"
    index = TransactionIndex(path, 0)
    assert index.collect(0, 100).transactions == []
    index.truncate_to(0)
    index.reset()
    index.sanity_check()
    index.close()
    assert not path.exists()
    index.append(aborted(1, 5))
    index.flush()
    index.close()
    assert path.stat().st_size == ENTRY_SIZE
    assert TransactionIndex(path, 0).all == [aborted(1, 5)]


@given(
    transactions=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20), st.integers(0, 30)), max_size=20),
    fetch_offset=st.integers(0, 200),
    size=st.integers(0, 200),
)
@settings(deadline=None, max_examples=150)
def test_a_range_gets_the_transactions_that_overlap_it(
    tmp_path_factory: pytest.TempPathFactory,
    transactions: list[tuple[int, int, int]],
    fetch_offset: int,
    size: int,
) -> None:
    """Those with an offset in [fetch offset, bound), up to the first entry whose last stable offset reaches the
    bound."""
    entries, last = [], 0
    for before, step, unstable in transactions:
        last += step
        entries.append(aborted(max(0, last - before), last, max(0, last + 1 - unstable)))
    index = TransactionIndex(tmp_path_factory.mktemp("txn") / "x.txnindex", 0)
    for entry in entries:
        index.append(entry)
    bound = fetch_offset + size
    expected, is_complete = [], False
    for entry in entries:
        if any(fetch_offset <= offset < bound for offset in range(entry.first_offset, entry.last_offset + 1)) or (
            size == 0 and entry.first_offset < bound <= entry.last_offset
        ):
            expected.append(entry)
        if entry.last_stable_offset >= bound:
            is_complete = True
            break
    assert index.collect(fetch_offset, bound) == (expected, is_complete)
    index.close()


def test_last_offsets_ascend(tmp_path: Path) -> None:
    index = TransactionIndex(tmp_path / "x.txnindex", 0)
    index.append(aborted(1, 5))
    with pytest.raises(ValueError, match=r"x\.txnindex"):
        index.append(aborted(2, 5))
    index.close()
    again = TransactionIndex(tmp_path / "x.txnindex", 0)
    with pytest.raises(ValueError, match="not larger"):
        again.append(aborted(2, 4))
    again.append(aborted(2, 6))
    assert [entry.last_offset for entry in again.all] == [5, 6]
    again.close()


def test_truncation_keeps_what_ended_before(tmp_path: Path) -> None:
    index = TransactionIndex(tmp_path / "x.txnindex", 0)
    for last in (5, 10, 15):
        index.append(aborted(last - 2, last))
    index.truncate_to(10)
    assert [entry.last_offset for entry in index.all] == [5]
    index.append(aborted(6, 9))
    assert [entry.last_offset for entry in index.all] == [5, 9]
    index.reset()
    assert index.is_empty
    assert index.size_in_bytes == (tmp_path / "x.txnindex").stat().st_size == 0
    index.delete()
    assert not index.exists


def test_a_torn_entry_is_not_there_and_overwritten_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "x.txnindex"
    sound = encode_entry(aborted(1, 5))
    for size in range(1, ENTRY_SIZE):
        path.write_bytes(sound + encode_entry(aborted(6, 9))[:size])
        index = TransactionIndex(path, 0)
        assert index.all == [aborted(1, 5)]
        with pytest.raises(CorruptIndexError, match="multiple"):
            index.sanity_check()
        index.append(aborted(7, 11))
        index.close()
        assert path.read_bytes() == sound + encode_entry(aborted(7, 11))


def test_an_unknown_version_and_a_foreign_entry_are_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "x.txnindex"
    path.write_bytes(b"\x00\x01" + encode_entry(aborted(1, 5))[2:])
    index = TransactionIndex(path, 0)
    for call in (lambda: index.all, lambda: index.collect(0, 10), index.sanity_check):
        with pytest.raises(CorruptIndexError, match="version 1"):
            call()
    index.close()
    path.write_bytes(encode_entry(aborted(1, 5)))
    with pytest.raises(CorruptIndexError, match="before the segment"):
        TransactionIndex(path, 6).sanity_check()


def test_an_index_goes_on_under_its_new_name(tmp_path: Path) -> None:
    index = TransactionIndex(tmp_path / "x.txnindex", 0)
    index.rename_to(tmp_path / "y.txnindex")  # nothing to rename yet
    index.append(aborted(1, 5))
    index.rename_to(tmp_path / "y.txnindex.deleted")
    assert [path.name for path in tmp_path.iterdir()] == ["y.txnindex.deleted"]
    assert index.all == [aborted(1, 5)]
    index.close()


def test_an_index_that_was_filled_goes_on_behind_its_last_entry(tmp_path: Path) -> None:
    path = tmp_path / "x.txnindex"
    index = TransactionIndex(path, 0)
    before = [aborted(0, 10), aborted(5, 15), aborted(18, 35), aborted(32, 50)]
    for transaction in before:
        index.append(transaction)
    index.close()
    again = TransactionIndex(path, 0)
    again.append(aborted(50, 60))
    assert again.all == [*before, aborted(50, 60)]
    again.close()


def test_an_index_is_empty_without_a_file_and_with_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "x.txnindex"
    assert TransactionIndex(path, 0).is_empty
    path.write_bytes(b"")
    index = TransactionIndex(path, 0)
    found = [index.is_empty]
    index.append(aborted(0, 1))
    found.append(index.is_empty)
    assert found == [True, False]
    index.close()
