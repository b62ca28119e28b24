"""The plain replay of producers gives what `ProducerStateManager` writes, and reading skips no batch that matters."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stratalog.jobs.fsck.producers import Replay, difference
from stratalog.jobs.fsck.segment import read_segment
from stratalog.log.format.file_names import log_file
from stratalog.log.index.txn_index import AbortedTransaction
from stratalog.log.producers.producer_state import ProducerStateManager
from stratalog.records import ControlType, Record, build_batch, end_transaction_marker
from stratalog.records.batch import RecordBatch, iter_batches
from stratalog.util.filesystem import REAL_FILESYSTEM


def random_log(seed: int, count: int) -> list[bytes]:
    """Batches of a few producers, with and without transactions, each allowed where it stands."""
    chosen = random.Random(seed)
    epochs, sequences, is_open, parts, offset = [0] * 4, [0] * 4, [False] * 4, [], 0
    for _ in range(count):
        producer = chosen.randrange(4)
        if is_open[producer] and chosen.random() < 0.4:
            end = chosen.choice((ControlType.ABORT, ControlType.COMMIT))
            epochs[producer] += chosen.randrange(2)
            sequences[producer] = 0 if chosen.random() < 0.5 else sequences[producer]
            parts.append(
                end_transaction_marker(
                    end,
                    producer_id=producer,
                    producer_epoch=epochs[producer],
                    coordinator_epoch=chosen.randrange(5),
                    timestamp_ms=offset,
                    base_offset=offset,
                    partition_leader_epoch=0,
                )
            )
            is_open[producer] = False
            offset += 1
            continue
        is_transactional = is_open[producer] or (producer % 2 == 0 and chosen.random() < 0.5)
        size = chosen.randrange(1, 4)
        parts.append(
            build_batch(
                [Record(offset + n, 1000 + chosen.randrange(99), b"k", b"v") for n in range(size)],
                base_offset=offset,
                producer_id=producer,
                producer_epoch=epochs[producer],
                base_sequence=sequences[producer],
                is_transactional=is_transactional,
                partition_leader_epoch=0,
            )
        )
        is_open[producer] = is_transactional
        sequences[producer] += size
        offset += size
    return parts


@pytest.mark.parametrize("seed", range(12))
def test_snapshots_and_aborted_transactions_are_those_of_the_engine(seed: int, tmp_path: Path) -> None:
    """For any log: the state at some offsets, and every aborted transaction, from the few batches that are kept."""
    parts = random_log(seed, 150)
    log = tmp_path / log_file(0)
    log.write_bytes(b"".join(parts))
    starts = [batch.base_offset for batch in iter_batches(log.read_bytes())]
    wanted = sorted(random.Random(seed).sample(starts, 5))
    facts = read_segment(log, 0, wanted, REAL_FILESYSTEM)
    assert facts.is_sound
    engine = ProducerStateManager("t-0", tmp_path / "none")
    replay = Replay(is_complete=True)
    aborted: list[AbortedTransaction] = []
    kept = [RecordBatch(data) for data in facts.producer_batches]
    assert len(kept) < len(parts)
    for batch in iter_batches(log.read_bytes()):
        if batch.base_offset in wanted:
            while kept and kept[0].base_offset < batch.base_offset:
                replay.see(kept.pop(0))
            snapshot = [entry.to_snapshot() for entry in engine.producers.values()]
            assert sorted(replay.entries()) == sorted(snapshot)
            assert difference(snapshot, replay.entries()) is None
        aborted += [one for one in [engine.update(batch)] if one is not None]
    for batch in kept:
        replay.see(batch)
    assert sorted(replay.entries()) == sorted(entry.to_snapshot() for entry in engine.producers.values())
    assert replay.aborted == aborted
