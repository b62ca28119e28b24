"""Ends that cannot be written at the moment: they are tried again, and no one gets in between."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.broker.transactions.cases import Script, script

from stratalog.broker.coordinator_log import CoordinatorLog
from stratalog.broker.server.server import Broker
from stratalog.broker.transactions import coordinator
from stratalog.broker.transactions.coordinator import TransactionCoordinator
from stratalog.engine.partition import Partition
from stratalog.errors import KafkaStorageError, UnknownTopicOrPartitionError
from stratalog.wire.api_keys import ApiKey

CONFIG = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}


def open_transaction(s: Script) -> tuple[int, int]:
    mine = s.init("init", "tx")
    for partition in (0, 1):
        s.produce(f"produce {partition}", "tx", mine, partition=partition)
    return mine


def end_code(s: Script, name: str, mine: tuple[int, int], *, committed: bool = True) -> int:
    answer = s.asker.ask(
        ApiKey.END_TXN,
        5,
        transactional_id="tx",
        producer_id=mine[0],
        producer_epoch=mine[1],
        committed=committed,
    )
    s.answers[name] = answer
    return int(answer["error_code"])


def test_a_marker_that_cannot_be_written_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "_RETRY_S", 0.01)
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, script(broker.bootstrap_servers) as s:
        mine = open_transaction(s)
        plain = Partition.append

        def full(partition: Partition, *args: Any, **fields: Any) -> Any:
            if (partition.topic, partition.partition) == ("one", 1):
                raise KafkaStorageError("full")
            return plain(partition, *args, **fields)

        with monkeypatch.context() as patch:
            patch.setattr(Partition, "append", full)
            assert end_code(s, "end", mine) == 0
            assert end_code(s, "again", mine) == 51
            assert end_code(s, "otherwise", mine, committed=False) == 48
            assert broker.services.transactions.unfinished == 1
            s.contents("one of two", "one", 1, committed=True)
            assert s.answers["one of two"] == [[], [], 0]
        while broker.services.transactions.unfinished:
            time.sleep(0.01)
        assert end_code(s, "after", mine) == 0
        for partition in (0, 1):
            s.contents(f"one-{partition}", "one", partition, committed=True)
            assert s.answers[f"one-{partition}"][0][0] == f"produce {partition}"


def test_the_marker_of_a_topic_that_is_gone_holds_nothing_up(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, script(broker.bootstrap_servers) as s:
        mine = open_transaction(s)
        s.produce("two", "tx", mine, "two")
        s.asker.call(ApiKey.DELETE_TOPICS, 5, topic_names=["two"], timeout=30_000)
        assert end_code(s, "end", mine) == 0
        assert broker.services.transactions.describe("tx").state.title == "CompleteCommit"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaStorageError("full"), 16),
        (OSError(28, "No space left on device"), 16),
        (UnknownTopicOrPartitionError("gone"), 15),
        (RuntimeError("a bug"), -1),
    ],
)
def test_a_decision_that_cannot_be_stored_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, script(broker.bootstrap_servers) as s:
        mine = open_transaction(s)

        def refuse(*_: object, **__: object) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(broker.services.transactions.log.partition_of("tx"), "append", refuse)
            assert end_code(s, "refused", mine) == code
        assert broker.services.transactions.describe("tx").state.title == "Ongoing"
        assert end_code(s, "abort", mine, committed=False) == 0
        s.contents("contents", "one", 0, committed=True)
        assert s.answers["contents"][1:] == [[0], 2]


def test_a_damaged_record_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, script(broker.bootstrap_servers) as s:
        s.init("init", "tx")
        log: CoordinatorLog = broker.services.transactions.log
        loop = broker.services.loop
        done = loop.call_soon_threadsafe(log.append, "bad", [(b"\0\0\0\3bad", b"\0\1")])
        s.init("init again", "tx")
        assert not done.cancelled()
    with Broker(data_dir=tmp_path, config=CONFIG) as broker:
        names = {known.transactional_id for known in broker.services.transactions.transactions()}
        assert names == {"first", "tx"}
    assert "value of transactional id 'bad' in __transaction_state is damaged at byte 2" in caplog.text


def test_timers_go_on_after_any_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []

    def fails(self: TransactionCoordinator) -> int:
        turns.append("expire")
        raise RuntimeError("on purpose")

    monkeypatch.setattr(TransactionCoordinator, "expire", fails)
    config = {"transaction.remove.expired.transaction.cleanup.interval.ms": "5"}
    with Broker(data_dir=tmp_path, config=config):
        deadline = time.monotonic() + 60
        while len(turns) < 3:
            assert time.monotonic() < deadline, "the first error was the last turn"
            time.sleep(0.005)
