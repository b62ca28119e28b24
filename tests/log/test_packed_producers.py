"""Snapshots of many producers: the bytes of the plain way, without packing all entries at the roll.

Invariant of the property test: a snapshot is `encode` of the entries in `hash_order`, at any time.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from stratalog.log.format.producer_snapshot import encode, hash_order
from stratalog.log.producers import packed_producers, producer_state
from stratalog.log.producers.producer_entry import ProducerEntry
from stratalog.log.producers.producer_state import ProducerStateManager
from stratalog.records.batch import RecordBatch
from stratalog.records.batch_builder import build_batch
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock


@pytest.fixture(params=["arrays", "plain"])
def arrays(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With numpy, and before it is there."""
    packed_producers.load_arrays()
    if request.param == "plain":
        monkeypatch.setattr(packed_producers, "_numpy", None)
    loading = threading.Lock()
    loading.acquire()  # no thread loads it amid a test
    monkeypatch.setattr(packed_producers, "_loading", loading)


class Producers:
    """A manager, and batches for it."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock(1_000_000)
        self.manager = ProducerStateManager("t-0", directory, clock=self.clock, expiration_ms=1000)
        self.offset = 0
        self.sequences: dict[int, int] = {}

    def append(self, producer_id: int, *, is_transactional: bool = False) -> None:
        sequence = self.sequences.get(producer_id, -1) + 1
        self.sequences[producer_id] = sequence
        self._commit(
            build_batch(
                [Record(self.offset, self.clock.now_ms(), None, b"v")],
                base_offset=self.offset,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=is_transactional,
            )
        )

    def end(self, producer_id: int, outcome: ControlType) -> None:
        marker = bytearray(
            end_transaction_marker(
                outcome,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=2,
                timestamp_ms=self.clock.now_ms(),
            )
        )
        batch = RecordBatch(memoryview(marker))
        updates = self.manager.prepare("coordinator")
        updates.add(batch)
        self.manager.commit(updates)
        self._move()

    def _commit(self, data: bytes) -> None:
        updates = self.manager.prepare()
        assert updates.add(RecordBatch(memoryview(data))) is None
        self.manager.commit(updates)
        self._move()

    def _move(self) -> None:
        self.offset += 1
        self.manager.update_map_end_offset(self.offset)

    def snapshot(self) -> bytes:
        self.offset += 1
        path = self.manager.take_snapshot(self.offset, sync=False)
        assert path is not None
        return path.read_bytes()

    def plain(self) -> bytes:
        known = self.manager.producers
        order = hash_order(known, self.manager._hash_table_size)
        return encode([known[producer_id].to_snapshot() for producer_id in order])


@pytest.mark.parametrize("seed", range(4))
def test_a_snapshot_is_that_of_the_plain_way(
    seed: int, arrays: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seed {seed}")
    monkeypatch.setattr(producer_state, "MANY_PRODUCERS", 5)
    monkeypatch.setattr(packed_producers, "_BLOCK", 3)
    chance = random.Random(seed)
    world = Producers(tmp_path)
    ids = [chance.randrange(limit) for limit in (30, 2000, 2**33, 2**63) for _ in range(20)]
    open_transactions: set[int] = set()
    had_many = False
    for _ in range(600):
        what = chance.randrange(20)
        producer_id = chance.choice(ids)
        if what == 0:
            world.clock.advance(chance.choice((100, 400)))
            world.manager.remove_expired(world.clock.now_ms())
            world.sequences = {known: world.sequences[known] for known in world.manager.producers}
        elif what == 1:
            assert world.snapshot() == world.plain()
        elif what < 5 and producer_id in open_transactions:
            world.end(producer_id, chance.choice((ControlType.COMMIT, ControlType.ABORT)))
            open_transactions.discard(producer_id)
        elif what < 8:
            world.append(producer_id, is_transactional=True)
            open_transactions.add(producer_id)
        elif producer_id not in open_transactions:
            world.append(producer_id)
        had_many = had_many or world.manager._packed is not None
    assert had_many
    assert world.snapshot() == world.plain()
    again = ProducerStateManager("t-0", tmp_path, clock=world.clock, expiration_ms=1000)
    again.truncate_and_reload(0, world.offset + 5)
    again.take_snapshot(world.offset + 7, sync=False)
    assert again.producers.keys() == world.manager.producers.keys()


def test_a_roll_packs_only_the_producers_that_have_just_changed(
    arrays: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Producers(tmp_path)
    for producer_id in range(2 * packed_producers.MANY_PRODUCERS):
        world.append(producer_id)
    packed = []
    one = ProducerEntry.packed

    def counted(self: ProducerEntry) -> bytes:
        packed.append(self.producer_id)
        return one(self)

    monkeypatch.setattr(ProducerEntry, "packed", counted)
    found = world.snapshot()
    assert len(packed) < packed_producers.MANY_PRODUCERS / 4
    packed.clear()
    world.append(7)
    found = world.snapshot()
    assert packed == [7]
    assert found == world.plain()
