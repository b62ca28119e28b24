"""Tiered replicas by seed: under any leader, dies, or does not know that it leads no more, every record can be read.

What a reader of the leader gets, over both tiers, is every offset from the log start on, after each step.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from tests.engine.test_replicas import KEY
from tests.engine.tiered_pair import TieredPair, TieredWire

from stratalog.engine.replication import ReplicaFetcher
from stratalog.errors import OffsetOutOfRangeError, RemoteStorageError
from stratalog.wire.client import Client

STEPS = 20


class Run:
    """One run of a seed; a step is an action and the check."""

    def __init__(self, seed: int, pair: TieredPair) -> None:
        self.random = random.Random(seed)
        self.pair = pair
        self.steps: list[str] = []

    def go(self) -> None:
        actions: list[Callable[[], object]] = [
            self.append,
            self.append,
            self.tier,
            self.tier,
            self.elect,
            self.leave_uninformed,
            self.lose_disk,
            self.restart,
            self.delete_records,
        ]
        self.append()
        for action in self.random.choices(actions, k=STEPS):
            self.steps.append(action.__name__)
            action()
            self.check()

    def check(self) -> None:
        leader = self.pair.assigned.leader
        log = self.pair.partition(leader).log
        try:
            found = self.pair.read_all(leader)
        except OffsetOutOfRangeError:
            # A former leader deleted records, and this one has not heard of it: its next turn finds the beginning.
            assert "delete_records" in self.steps
            self.pair.remotes[leader].run_once(KEY)
            found = self.pair.read_all(leader)
        assert found == list(range(log.log_start_offset, log.high_watermark))

    def append(self) -> None:
        self.pair.append(self.random.randint(1, 15))

    def tier(self) -> None:
        for node in self.random.sample((1, 2), self.random.randint(1, 2)):
            self.pair.tier(node)

    def elect(self) -> None:
        self.pair.elect(self.random.choice((1, 2)), (1, 2))
        self.pair.publish()
        self.pair.settle()

    def leave_uninformed(self) -> None:
        """Elect the other one, while the leader goes on copying and deleting for a while."""
        before = self.pair.assigned.leader
        after = 3 - before
        self.pair.elect(after, (1, 2))
        self.pair.publish(after)
        for node in self.random.sample((1, 2, 1, 2), 3):
            try:
                self.pair.tier(node)
            except RemoteStorageError:
                assert node == before, "what it copied was taken back"
        self.pair.publish(before)
        self.pair.settle()

    def lose_disk(self) -> None:
        node = 3 - self.pair.assigned.leader
        self.pair.engines[node].close()
        shutil.rmtree(self.pair.tmp_path / str(node))
        self.pair.start(node)
        self.pair.publish(node)
        self.pair.settle()

    def restart(self) -> None:
        node = self.random.choice((1, 2))
        self.pair.engines[node].close()
        self.pair.start(node)
        self.pair.publish(node)
        self.pair.settle()

    def delete_records(self) -> None:
        log = self.pair.partition(self.pair.assigned.leader).log
        log.increment_log_start_offset(
            self.random.randint(log.log_start_offset, max(log.high_watermark - 20, log.log_start_offset)),
            "DeleteRecords",
        )


def run(seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[TieredPair] = []

    def connected(fetcher: ReplicaFetcher) -> Client:
        return cast("Client", TieredWire(made[-1], fetcher._leader, fetcher._cluster.node_id))

    monkeypatch.setattr(ReplicaFetcher, "_connected", connected)
    for seed in seeds:
        made.append(TieredPair(tmp_path / str(seed)))
        made[-1].publish()
        played = Run(seed, made[-1])
        try:
            played.go()
        except BaseException as error:
            error.add_note(f"seed {seed}: {played.steps}")
            raise
        finally:
            made[-1].close()


@pytest.mark.parametrize("seed", [0, 28])
def test_every_record_is_read_under_any_leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """In run 28 a leader deletes records and goes before the other broker has heard of it."""
    run(range(seed, seed + 1), tmp_path, monkeypatch)


@pytest.mark.soak
def test_every_record_is_read_in_60_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(range(60), tmp_path, monkeypatch)
