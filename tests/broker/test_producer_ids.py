"""Producer ids with the metadata store failing at every step: none is given out twice, and none of a block that
failed."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
from pathlib import Path

import pytest
from tests.support.wire import Wire

from stratalog.broker.metadata.store import MetadataStore, ProducerIdBlock
from stratalog.broker.producer_ids import ProducerIds
from stratalog.broker.server.server import Broker
from stratalog.broker.workers import Workers
from stratalog.cli.main import run
from stratalog.errors import KafkaStorageError
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.wire.api_keys import ApiKey


class FailingConnection:
    """An SQLite connection whose `step`-th statement from now on fails, before or behind its work."""

    def __init__(self, inner: object, step: int, *, is_done: bool) -> None:
        self._inner, self._left, self._is_done = inner, step, is_done
        self.has_failed = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def execute(self, statement: str, *values: object) -> object:
        self._left -= 1
        if self._left != 0:
            return self._inner.execute(statement, *values)  # type: ignore[attr-defined]
        self.has_failed = True
        if self._is_done:
            self._inner.execute(statement, *values)  # type: ignore[attr-defined]
        raise sqlite3.OperationalError("disk I/O error")


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("step", range(1, 5))
def test_ids_are_given_once_whatever_statement_of_a_new_block_fails(tmp_path: Path, step: int, is_done: bool) -> None:
    store = MetadataStore.open(tmp_path)
    ids = ProducerIds(store)
    given = [ids.next() for _ in range(1_000)]  # the first block, whole
    real = store._db
    failing = FailingConnection(real, step, is_done=is_done)
    store._db = failing  # type: ignore[assignment]
    with pytest.raises(KafkaStorageError):
        ids.next()
    assert failing.has_failed
    store._db = real
    assert not real.in_transaction
    other = ProducerIds(store)
    for _ in range(1_001):
        given += [ids.next(), other.next()]
    store.close()
    store = MetadataStore.open(tmp_path)
    given.append(ProducerIds(store).next())
    store.close()
    assert len(set(given)) == len(given) == 3_003
    assert given[-1] == max(given)


def test_the_loop_never_waits_for_a_block_of_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block costs a write to the disk; the next one is there before the last is used up."""
    takers: list[int] = []
    take = MetadataStore.allocate_producer_ids

    def noted(self: MetadataStore, size: int = 1000) -> ProducerIdBlock:
        takers.append(threading.get_ident())
        return take(self, size)

    monkeypatch.setattr(MetadataStore, "allocate_producer_ids", noted)
    with Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        loop_thread = broker._thread.ident
        asked = {"transactional_id": None, "transaction_timeout": 60_000}
        for _ in range(2500):
            wire.send(ApiKey.INIT_PRODUCER_ID, 4, **asked)
        given = [int(wire.receive(ApiKey.INIT_PRODUCER_ID, 4).producer_id) for _ in range(2500)]
        assert given == list(range(2500))
        assert len(takers) == 3
        assert loop_thread not in takers


def test_a_crowd_that_uses_up_a_block_is_answered_whole(tmp_path: Path) -> None:
    """The last of those who waited for one block begin the next, while others have not yet looked at the first."""
    store = MetadataStore.open(tmp_path)
    ids = ProducerIds(store)

    async def crowd() -> list[int]:
        workers = Workers(asyncio.get_running_loop())

        async def one() -> int:
            await ids.ready(workers)
            return ids.next()

        given = await asyncio.gather(*(one() for _ in range(2_500)))
        workers.close()
        return given

    assert sorted(asyncio.run(crowd())) == list(range(2_500))
    store.close()


def test_a_block_that_cannot_be_taken_ahead_is_tried_again_and_its_failure_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_broken = True
    take = MetadataStore.allocate_producer_ids

    def allocate(self: MetadataStore, size: int = 1000) -> ProducerIdBlock:
        if is_broken:
            raise KafkaStorageError("the disk is full")
        return take(self, size)

    monkeypatch.setattr(MetadataStore, "allocate_producer_ids", allocate)
    with Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        asked = {"transactional_id": None, "transaction_timeout": 60_000}
        refused = wire.call(ApiKey.INIT_PRODUCER_ID, 4, **asked)
        assert (int(refused.error_code), refused.producer_id) == (KafkaStorageError.code, -1)
        is_broken = False
        assert int(wire.call(ApiKey.INIT_PRODUCER_ID, 4, **asked).producer_id) == 0


def test_a_directory_that_is_taken_over_keeps_its_producers_ids_for_itself(tmp_path: Path) -> None:
    """It may be another cluster's, whose first producer had the same id as ours."""
    with Broker(tmp_path / "theirs") as theirs:
        produce = ["produce", "orders", "one", "two", "--create", "-b", theirs.bootstrap_servers]
        assert run(produce) == 0
    shutil.copytree(tmp_path / "theirs" / "orders-0", tmp_path / "ours" / "orders-0")
    (tmp_path / "ours" / "orders-0" / "partition.metadata").unlink()
    with Broker(tmp_path / "ours") as ours:
        for topic in ("first", "orders", "orders"):  # a block is begun; then an id in it is another's
            assert run(["produce", topic, "x", "--create", "-b", ours.bootstrap_servers]) == 0
        assert run(["produce", "orders", "three", "-b", ours.bootstrap_servers]) == 0
        partition = ours.services.partition("orders", 0)
        assert partition is not None
        assert partition.log.log_end_offset == 5
    with Broker(tmp_path / "ours") as again:
        assert run(["produce", "orders", "four", "-b", again.bootstrap_servers]) == 0


def test_an_id_that_a_client_writes_does_not_use_up_those_before_it(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        broker.services.topics.create("orders", 1)
        partition = broker.services.partition("orders", 0)
        assert partition is not None
        partition.append(
            build_batch([Record(0, 0, None, b"v")], producer_id=2**63 - 1, producer_epoch=0, base_sequence=0)
        )
        more = [{"name": "orders", "count": 2, "assignments": None}]
        assert wire.call(ApiKey.CREATE_PARTITIONS, 3, topics=more, timeout=30_000).results[0].error_code == 0
        answer = wire.call(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout=60_000)
        assert (int(answer.error_code), int(answer.producer_id)) == (0, 0)


def test_a_made_up_id_in_a_directory_that_is_taken_over_is_not_skipped(tmp_path: Path) -> None:
    with Broker(tmp_path / "theirs") as theirs:
        theirs.services.topics.create("orders", 1)
        partition = theirs.services.partition("orders", 0)
        assert partition is not None
        for producer_id in (2**63 - 1, 7):
            record = Record(0, theirs.services.clock.now_ms(), None, b"v")  # an old producer is forgotten
            partition.append(build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=0))
    shutil.copytree(tmp_path / "theirs" / "orders-0", tmp_path / "ours" / "orders-0")
    (tmp_path / "ours" / "orders-0" / "partition.metadata").unlink()
    with Broker(tmp_path / "ours") as ours, Wire(ours.bootstrap_servers) as wire:
        ours.services.topics.create("orders", 1)
        answer = wire.call(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout=60_000)
        assert (int(answer.error_code), int(answer.producer_id)) == (0, 8)
