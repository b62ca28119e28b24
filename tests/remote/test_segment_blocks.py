from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import RetriableRemoteStorageError
from stratalog.remote.api.interfaces import RemoteLogSegmentMetadata
from stratalog.remote.reading.segment_blocks import SegmentBlocks
from tests.remote.values import segment

DATA = bytes(n % 251 for n in range(1_037))
SEGMENT = segment(1, 0, 99, size=len(DATA))


class FakeStore:
    """Serves DATA; remembers what was asked for."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.served = 0
        self.fail = False
        self.lock = threading.Condition()
        self.gate = threading.Event()
        self.gate.set()

    def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, start: int, end: int | None = None) -> bytes:
        with self.lock:
            self.ranges.append((start, end or -1))
            self.lock.notify_all()
        self.gate.wait()
        with self.lock:
            self.served += 1
            self.lock.notify_all()
        if self.fail:
            raise RetriableRemoteStorageError("503")
        return DATA[start:end]

    def await_served(self, count: int) -> None:
        with self.lock:
            assert self.lock.wait_for(lambda: self.served >= count, 30)

    def await_asked(self, count: int) -> None:
        with self.lock:
            assert self.lock.wait_for(lambda: len(self.ranges) >= count, 30)


def _blocks(store: FakeStore, **options: int) -> SegmentBlocks:
    return SegmentBlocks(store, block_bytes=100, capacity_bytes=600, **options)  # type: ignore[arg-type]


def _read(blocks: SegmentBlocks, start: int, end: int) -> bytes:
    return b"".join(blocks.read(SEGMENT, start, end))


@settings(deadline=None, max_examples=50)
@given(ranges=st.lists(st.tuples(st.integers(0, 1_100), st.integers(0, 1_100)), max_size=20))
def test_any_reads_in_any_order_give_the_bytes(ranges: list[tuple[int, int]]) -> None:
    """Whatever was read before, a range is the bytes of the segment in that range."""
    blocks = _blocks(FakeStore())
    for start, end in ranges:
        assert _read(blocks, start, end) == DATA[start:end]
    blocks.close()


def test_a_sequential_reader_gets_blocks_ahead_and_each_block_once() -> None:
    store = FakeStore()
    blocks = _blocks(store, blocks_ahead=3)
    assert _read(blocks, 0, 25) == DATA[:25]
    store.await_asked(2)  # the next one, of which no one has read anything
    for at in range(25, len(DATA), 25):
        assert _read(blocks, at, at + 25) == DATA[at : at + 25]
    assert sorted(store.ranges) == [(at, min(at + 100, len(DATA))) for at in range(0, len(DATA), 100)]
    blocks.close()


def test_a_reader_that_has_to_wait_gets_more_ahead_and_a_slow_one_less() -> None:
    store = FakeStore()
    blocks = SegmentBlocks(store, block_bytes=100, blocks_ahead=4)  # type: ignore[arg-type]
    store.gate.clear()
    with ThreadPoolExecutor(3) as readers:
        waiting = [readers.submit(_read, blocks, 0, 10)]
        store.await_asked(2)  # the block itself, and one ahead
        waiting.append(readers.submit(_read, blocks, 100, 110))
        store.await_asked(4)  # it was under way: two ahead from here
        waiting.append(readers.submit(_read, blocks, 200, 210))
        store.await_asked(4)  # no more than four threads fetch
        store.gate.set()
        for at, found in zip((0, 100, 200), waiting, strict=True):
            assert found.result() == DATA[at : at + 10]
    store.await_asked(7)  # four ahead of the third block
    store.await_served(7)
    for _ in range(8):
        _read(blocks, 200, 210)  # one less each time
    for at in (300, 400, 500, 600):
        _read(blocks, at, at + 10)
    store.await_asked(8)
    blocks.close()
    assert sorted(start for start, _ in store.ranges) == [0, 100, 200, 300, 400, 500, 600, 700]


def test_a_single_look_fetches_its_block_alone() -> None:
    store = FakeStore()
    blocks = _blocks(store)
    assert _read(blocks, 512, 514) == DATA[512:514]
    blocks.close()
    assert store.ranges == [(500, 600)]


def test_a_failed_block_is_fetched_again() -> None:
    store = FakeStore()
    blocks = _blocks(store)
    store.fail = True
    with pytest.raises(RetriableRemoteStorageError):
        _read(blocks, 512, 514)
    store.fail = False
    assert _read(blocks, 512, 514) == DATA[512:514]
    blocks.close()


def test_many_readers_share_one_fetch() -> None:
    store = FakeStore()
    blocks = _blocks(store)
    barrier = threading.Barrier(8)

    def read(_: int) -> bytes:
        barrier.wait()
        return _read(blocks, 512, 514)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(read, range(8))) == {DATA[512:514]}
    assert store.ranges == [(500, 600)]
    blocks.close()


def test_a_forgotten_segment_is_fetched_again() -> None:
    store = FakeStore()
    blocks = _blocks(store)
    _read(blocks, 512, 514)
    blocks.forget(SEGMENT.segment_id.id.bytes)
    _read(blocks, 512, 514)
    assert store.ranges == [(500, 600)] * 2
    blocks.close()


def test_a_closed_reader_refuses() -> None:
    blocks = _blocks(FakeStore())
    blocks.close()
    with pytest.raises(RetriableRemoteStorageError):
        _read(blocks, 0, 10)
