"""A broker that dies at any step of a transaction's end: after the next start everything of it is visible, or
nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.broker.transactions.cases import Script, script

from stratalog.broker.coordinator_log import CoordinatorLog, read_contents
from stratalog.broker.groups.offsets import TopicPartition
from stratalog.broker.server.server import Broker
from stratalog.broker.transactions.markers import MarkerWriter
from stratalog.broker.transactions.records import decode_key
from stratalog.wire.api_keys import ApiKey

CONFIG = {
    "log.index.size.max.bytes": 4096,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 1,
}
OLD, NEW = 0, 2
PARTITIONS = (("one", 0), ("one", 1), ("two", 0))


@dataclass
class Moments:
    """Copies of the data directory as a kill would leave it, at each step."""

    data_dir: Path
    copies: Path
    taken: list[Path]

    def take(self) -> None:
        copy = self.copies / str(len(self.taken))
        shutil.copytree(self.data_dir, copy, ignore=shutil.ignore_patterns(".lock"))
        self.taken.append(copy)


@contextmanager
def steps(moments: Moments, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take a moment before each append of a coordinator, and one after the last."""

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **fields: Any) -> Any:
            moments.take()
            return function(*args, **fields)

        return step

    with monkeypatch.context() as patch:
        patch.setattr(CoordinatorLog, "append", watched(CoordinatorLog.append))
        patch.setattr(MarkerWriter, "write", watched(MarkerWriter.write))
        yield
    moments.take()


def begin(s: Script, version: int) -> tuple[int, int]:
    """An open transaction with records in three partitions and commits of two groups."""
    mine = s.init("init", "tx")
    if version == OLD:
        s.add("add", "tx", mine, *PARTITIONS)
    for topic, partition in PARTITIONS:
        s.produce(
            f"{topic}-{partition}",
            "tx",
            mine,
            topic,
            partition=partition,
            version=11 if version == OLD else 12,
        )
    for group in ("g1", "g2"):
        if version == OLD:
            s.add_offsets(f"add {group}", "tx", mine, group)
        s.commit_offsets(group, "tx", mine, group, version=4 if version == OLD else 5)
    assert {code for answer in s.answers.values() for code in _codes(answer)} == {0}
    return mine


def _codes(answer: Any) -> list[int]:
    if isinstance(answer, dict):
        own = [code for name, code in answer.items() if name.endswith("error_code")]
        return own + [code for item in answer.values() for code in _codes(item)]
    return [code for item in answer for code in _codes(item)] if isinstance(answer, list) else []


def visible(broker: Broker, s: Script, label: str) -> set[str]:
    """What counts of the transaction, by partition and group."""
    found = set()
    for topic, partition in PARTITIONS:
        name = f"{label}: {topic}-{partition}"
        s.contents(name, topic, partition, committed=True)
        reported, aborted, stable = s.answers[name]
        assert stable == broker.services.logs.get(topic, partition).log.log_end_offset  # type: ignore[union-attr]
        if "ABORT" not in str(reported) and not aborted and reported:
            found.add(f"{topic}-{partition}")
    for group in ("g1", "g2"):
        if broker.services.groups.commits.committed.get(group, TopicPartition("one", 0)) is not None:
            found.add(group)
        assert not broker.services.groups.commits.pending.has_group(group)
    return found


@pytest.mark.parametrize(("version", "committed"), [(OLD, True), (NEW, True), (NEW, False)])
def test_a_crash_at_any_step_leaves_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, committed: bool
) -> None:
    moments = Moments(tmp_path / "data", tmp_path / "copies", [])
    with Broker(data_dir=moments.data_dir, config=CONFIG) as broker, script(broker.bootstrap_servers) as s:
        mine = begin(s, version)
        with steps(moments, monkeypatch):
            s.end("end", "tx", mine, committed, version=5 if version == NEW else 4)
        everything = {*(f"{topic}-{partition}" for topic, partition in PARTITIONS), "g1", "g2"}
        assert visible(broker, s, "after") == (everything if committed else set())
    # before the decision, four or five markers (the groups may share a partition), the completion; and after it
    assert len(moments.taken) in (7, 8)
    for number, copy in enumerate(moments.taken):
        decided = number > 0
        with Broker(data_dir=copy, config=CONFIG) as broker:
            made = Script(broker.bootstrap_servers)
            (known,) = (
                known for known in broker.services.transactions.transactions() if known.transactional_id == "tx"
            )
            assert known.state.title == (
                "Ongoing" if not decided else "CompleteCommit" if committed else "CompleteAbort"
            )
            # The client asks again over another connection: it gets the outcome, or has it now.
            again = made.end("again", "tx", mine, committed, version=5 if version == NEW else 4)
            assert made.answers["again"]["error_code"] == 0
            assert visible(broker, made, "again") == (everything if committed else set())
            if version == NEW:
                assert again == (mine[0], mine[1] + 1)
                mine_now = again
            else:
                mine_now = mine
            made.produce("next", "tx", mine_now, "two", sequence=0 if version == NEW else 1)
            assert _codes(made.answers["next"]) == [0]
            made.asker.close()


def test_a_transaction_without_a_decision_is_aborted_when_its_time_is_over(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with Broker(data_dir=data_dir, config=CONFIG) as broker, script(broker.bootstrap_servers) as s:
        mine = s.init("init", "tx", timeout=1)
        s.produce("produce", "tx", mine)
        assert _codes(s.answers["produce"]) == [0]
    quick = {**CONFIG, "transaction.abort.timed.out.transaction.cleanup.interval.ms": 10}
    with Broker(data_dir=data_dir, config=quick) as broker:
        made = Script(broker.bootstrap_servers)
        known = broker.services.transactions.describe("tx")
        while known.state.title != "CompleteAbort":
            made.asker.call(ApiKey.API_VERSIONS, 0)
            known = broker.services.transactions.describe("tx")
        assert known.producer_epoch == 1
        made.end("end", "tx", mine, True)
        assert made.answers["end"]["error_code"] == 90
        made.contents("contents", "one", 0, committed=True)
        assert made.answers["contents"][1:] == [[0], 2]
        made.asker.close()


def test_ids_that_no_one_uses_are_forgotten_for_good(tmp_path: Path) -> None:
    quick = {
        **CONFIG,
        "transactional.id.expiration.ms": 1,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 10,
    }
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, script(broker.bootstrap_servers) as s:
        mine = s.init("init", "tx")
        open_one = s.init("init open", "open")
        s.produce("produce", "open", open_one)
    with Broker(data_dir=tmp_path, config=quick) as broker:
        made = Script(broker.bootstrap_servers)
        while len(broker.services.transactions.transactions()) > 1:
            made.asker.call(ApiKey.API_VERSIONS, 0)
        made.end("end", "tx", mine, True)
        assert made.answers["end"]["error_code"] == 49
        made.asker.close()
    with Broker(data_dir=tmp_path, config=CONFIG) as broker:
        assert [known.transactional_id for known in broker.services.transactions.transactions()] == ["open"]


def test_before_transactions_version_1_the_records_are_those_of_old_brokers(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, script(broker.bootstrap_servers) as s:
        broker.services.store.finalize({"transaction.version": 0})
        mine = s.init("init", "tx")
        s.add("add", "tx", mine, ("one", 0))
        s.end("end", "tx", mine, True)
        again = s.init("init again", "tx")
        s.add("add again", "tx", again, ("one", 0))
        s.init("fence", "tx", again=False)
        assert s.answers["fence"]["error_code"] == 51
        (partition,) = broker.services.logs.partitions("__transaction_state")
        (entry,) = (found for key, found in read_contents(partition).latest.items() if decode_key(key) == "tx")
        assert entry.value is not None
        assert entry.value[:2] == b"\0\0"
    with Broker(data_dir=tmp_path, config=CONFIG) as broker:
        known = broker.services.transactions.describe("tx")
        assert (known.state.title, known.producer_epoch) == ("CompleteAbort", again[1] + 1)
