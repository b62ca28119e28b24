"""Aborted transactions of remote records, reported as by the local log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.log.format.values import Isolation
from stratalog.log.index.txn_index import AbortedTransaction
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.records.record import Record
from stratalog.remote.storage.object_names import ObjectKind
from tests.remote.world import CONFIG, World


class Producer:
    """A transactional producer that sends batches of two records."""

    def __init__(self, world: World, producer_id: int) -> None:
        self.world = world
        self.producer_id = producer_id
        self._sequence = 0

    def send(self, batches: int) -> None:
        for _ in range(batches):
            now = self.world.clock.now_ms()
            records = [Record(offset=n, timestamp_ms=now, key=None, value=bytes(100)) for n in range(2)]
            batch = build_batch(
                records,
                producer_id=self.producer_id,
                producer_epoch=0,
                base_sequence=self._sequence,
                is_transactional=True,
            )
            self._sequence += 2
            self.world.append_raw(batch)

    def end(self, *, commit: bool) -> None:
        marker = end_transaction_marker(
            ControlType.COMMIT if commit else ControlType.ABORT,
            producer_id=self.producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=self.world.clock.now_ms(),
        )
        self.world.append_raw(marker, origin="coordinator")


def _scene(world: World) -> None:
    """Transactions that interleave and span segments, one after the other aborted and committed, some still local."""
    one, two, three = (Producer(world, number) for number in (11, 22, 33))
    for turn in range(12):
        one.send(3)
        two.send(2)
        if turn % 3 == 0:
            one.end(commit=False)
        elif turn % 3 == 1:
            one.end(commit=True)
        if turn % 4 == 3:
            two.end(commit=turn == 7)
    three.send(20)
    world.append(10)
    three.end(commit=False)
    one.end(commit=True)
    two.end(commit=True)
    world.append(5)


def _local_truth(world: World) -> dict[int, list[AbortedTransaction]]:
    """Every aborted transaction that overlaps the batch at an offset, by that offset."""
    everything = [entry for segment in world.log.segments for entry in segment.txn_index.all]
    assert len(everything) >= 6
    return {
        base: [
            entry
            for entry in everything
            if entry.first_offset <= batch.last_offset and entry.last_offset >= batch.base_offset
        ]
        for base, data in world.expected.items()
        for batch in iter_batches(data)
    }


def test_every_aborted_transaction_that_overlaps_is_reported_with_remote_records(tmp_path: Path) -> None:
    with World(tmp_path, replace(CONFIG, segment_bytes=3_000)) as world:
        _scene(world)
        truth = _local_truth(world)
        world.tier()
        world.drop_local()
        local_start = world.log.local_log_start_offset
        assert local_start > 100
        reported = 0
        for base in [base for base in world.expected if base < local_start]:
            result = world.manager.read(world.partition, base, 1, read_committed=True)
            assert result.records == world.expected[base]
            assert result.aborted is not None
            overlapping = [
                entry
                for entry in result.aborted
                if entry.first_offset <= next(iter_batches(result.records)).last_offset
            ]
            assert sorted(overlapping) == sorted(truth[base])
            reported += len(overlapping)
        assert reported > 0


def test_a_read_over_many_batches_tells_what_the_local_log_reported(tmp_path: Path) -> None:
    with World(tmp_path, replace(CONFIG, segment_bytes=3_000)) as world:
        _scene(world)
        sealed_end = world.log.active_segment.base_offset
        before = {
            offset: world.log.read(offset, 1_500, isolation=Isolation.TXN_COMMITTED).aborted
            for offset in range(0, sealed_end, 5)
        }
        world.tier()
        world.drop_local()
        for offset, aborted in before.items():
            if offset >= world.log.local_log_start_offset:
                continue
            result = world.manager.read(world.partition, offset, 1_500, read_committed=True)
            assert result.aborted is not None
            last = list(iter_batches(result.records))[-1].last_offset
            # The local log looks as far as the next index entry, the remote one to the end of what it gives.
            assert set(result.aborted) == {entry for entry in aborted or [] if entry.first_offset <= last}


def test_the_transaction_index_of_a_segment_is_copied_with_it(tmp_path: Path) -> None:
    with World(tmp_path, replace(CONFIG, segment_bytes=3_000)) as world:
        _scene(world)
        files = {
            segment.base_offset: segment.txn_index.path.read_bytes()
            for segment in world.log.segments[:-1]
            if not segment.txn_index.is_empty
        }
        world.tier()
        copied = {
            each.base_offset: bytes(world.inner.get(each.key(ObjectKind.TXN_INDEX)))
            for each in list_remote_segments(world.inner)
            if ObjectKind.TXN_INDEX in each.objects
        }
        assert copied == files
        assert len(files) > 2
        noted = world.rlmm.list_remote_log_segments(world.partition)
        assert {each.start_offset for each in noted if not each.txn_index_empty} == files.keys()


def test_without_read_committed_nothing_is_reported(tmp_path: Path) -> None:
    with World(tmp_path, replace(CONFIG, segment_bytes=3_000)) as world:
        _scene(world)
        world.tier()
        world.drop_local()
        assert world.manager.read(world.partition, 0, 1_500).aborted is None


def test_an_open_transaction_keeps_its_segments_here(tmp_path: Path) -> None:
    with World(tmp_path, replace(CONFIG, segment_bytes=3_000)) as world:
        world.append(10)
        producer = Producer(world, 11)
        producer.send(1)
        stable = world.log.last_stable_offset
        world.append(30)
        world.tier()
        assert 0 < world.log.highest_offset_in_remote_storage < stable
        producer.end(commit=False)
        world.tier()
        assert world.log.highest_offset_in_remote_storage > stable
        world.drop_local()
        result = world.manager.read(world.partition, stable, 1, read_committed=True)
        assert [entry.producer_id for entry in result.aborted or []] == [11]
        world.expect_everything()
