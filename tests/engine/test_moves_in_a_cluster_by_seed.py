"""A replica moves to and fro while leaders, connections, the controller's answers and its broker come and go, by seed.

Invariant: what was confirmed is in every replica at its offset, and all replicas hold the same bytes, in one directory.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.engine.test_log_manager import batch
from tests.engine.test_moves import contents
from tests.engine.test_moves_in_a_cluster import Movable
from tests.engine.test_replicas import connect_fetchers, until

from stratalog.errors import KafkaError

STEPS = 40


class Life:
    def __init__(self, pair: Movable, seed: int) -> None:
        self.pair = pair
        self.random = random.Random(seed)
        self.count = 0
        #: Appended and not confirmed yet: offset and value by epoch.
        self.open: list[tuple[int, int, bytes]] = []
        self.confirmed: dict[int, bytes] = {}
        pair.publish()

    def append(self) -> None:
        leader = self.pair.partition(self.pair.assigned.leader)
        epoch = self.pair.assigned.leader_epoch
        for _ in range(self.random.randrange(1, 20)):
            value = b"%08d" % self.count + bytes(self.random.randrange(20_000))
            self.count += 1
            try:
                info = leader.append(batch(value))
            except KafkaError:  # it has lost a directory, or another leads
                return
            self.open.append((epoch, info.last_offset, value))

    def confirm(self) -> None:
        epoch = self.pair.assigned.leader_epoch
        leader = self.pair.partition(self.pair.assigned.leader)
        self.open = [each for each in self.open if each[0] == epoch]
        left = []
        for each in self.open:
            if leader.is_confirmed(each[1], epoch):
                self.confirmed[each[1]] = each[2]
            else:
                left.append(each)
        self.open = left

    def elect(self) -> None:
        self.confirm()
        with self.pair.lock:
            others = [node for node in self.pair.assigned.isr if node != self.pair.assigned.leader]
            if not others:
                return
            self.pair.elect(others[0])
        self.pair.publish()

    def cut(self) -> None:
        self.pair.unreachable = set() if self.pair.unreachable else {2}

    def move(self) -> None:
        self.pair.move()

    def take_back(self) -> None:
        self.pair.engines[1].moves.begin(self.pair.partition(1), self.pair.here)

    def hold(self) -> None:
        if self.pair.may_answer.is_set():
            self.pair.may_answer.clear()
        else:
            self.pair.may_answer.set()

    def restart(self) -> None:
        if self.pair.assigned.leader == 1:
            self.elect()
        if self.pair.assigned.leader != 1:
            self.pair.may_answer.set()
            self.pair.restart()
            self.pair.publish(1)

    def run(self) -> None:
        steps: list[Callable[[], None]] = [self.append] * 6 + [self.move] * 3
        steps += [self.confirm, self.elect, self.elect, self.cut, self.take_back, self.hold, self.restart]
        for _ in range(STEPS):
            self.random.choice(steps)()
        self.pair.may_answer.set()
        self.pair.unreachable = set()
        until(lambda: set(self.pair.assigned.isr) == {1, 2})
        self.append()
        until(self.all_confirmed)
        until(self.pair.has_ended)
        until(lambda: self.pair.files(1) == self.pair.files(2))
        self.pair.engines[1].purge()
        until(lambda: len(self.pair.directories()) == 1)
        for node in (1, 2):
            found = contents(self.pair.partition(node))
            assert {offset: found[offset] for offset in self.confirmed} == self.confirmed
        first, second = (self.pair.partition(node).log.leader_epochs.entries for node in (1, 2))
        assert first == second
        assert self.pair.is_settled()

    def all_confirmed(self) -> bool:
        self.confirm()
        return not self.open


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Life]]:
    made: list[Movable] = []

    def start(seed: int) -> Life:
        home = tmp_path / str(seed)
        home.mkdir()
        made.append(Movable(home))
        return Life(made[-1], seed)

    connect_fetchers(monkeypatch, made)
    yield start
    for pair in made:
        pair.may_answer.set()
        pair.close()


def test_a_replica_that_moves_holds_what_was_confirmed(started: Callable[[int], Life]) -> None:
    started(1).run()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 42))
def test_a_replica_that_moves_holds_what_was_confirmed_in_many_lives(started: Callable[[int], Life], seed: int) -> None:
    started(seed).run()
