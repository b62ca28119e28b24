"""Every offset that is read of several replicas has the record that the cluster committed, whichever are seen.

A model of a partition: leaders append, followers truncate and fetch, replicas leave the ISR and come back, leaders die.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from stratalog.errors import UsageError
from stratalog.inspect import Checkpoints, LeaderEnd, Replica, choose_replicas
from stratalog.log.format.values import EpochEntry


def same(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> int:
    """How many records two logs have in common."""
    return next(
        (at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other))
    )


class ModelPartition:
    """Records are numbers that never come twice; `committed` is what every later leader has."""

    def __init__(self, random: Random, replicas: int = 3) -> None:
        self.random = random
        self.logs: list[list[tuple[int, int]]] = [[] for _ in range(replicas)]  # (epoch, record)
        self.epochs: list[list[EpochEntry]] = [[] for _ in range(replicas)]
        self.starts = [0] * replicas
        self.high_watermarks = [0] * replicas
        self.committed: list[tuple[int, int]] = []
        self.isr = set(range(replicas))
        self.leader = 0
        self.epoch = -1
        self.records = 0
        self.lead(0)

    def lead(self, replica: int) -> None:
        self.leader, self.epoch = replica, self.epoch + 1
        self.epochs[replica].append(EpochEntry(self.epoch, len(self.logs[replica])))

    def step(self) -> None:
        self.random.choice([self.append, self.fetch, self.fetch, self.fetch, self.shrink, self.fail, self.checkpoint])()

    def append(self) -> None:
        for _ in range(self.random.randint(1, 5)):
            self.records += 1
            self.logs[self.leader].append((self.epoch, self.records))

    def fetch(self) -> None:
        follower = self.random.choice([each for each in range(len(self.logs)) if each != self.leader])
        log, of_leader = self.logs[follower], self.logs[self.leader]
        common = same(log, of_leader)
        del log[common:]
        self.epochs[follower] = [each for each in self.epochs[follower] if each.start_offset < common]
        for offset in range(common, min(len(of_leader), common + self.random.randint(1, 8))):
            log.append(of_leader[offset])
            if not self.epochs[follower] or self.epochs[follower][-1].epoch < log[-1][0]:
                self.epochs[follower].append(EpochEntry(log[-1][0], offset))
        if len(log) >= len(self.committed):
            self.isr.add(follower)
        self.commit()

    def commit(self) -> None:
        end = min(same(self.logs[each], self.logs[self.leader]) for each in self.isr)
        self.committed += self.logs[self.leader][len(self.committed) : end]

    def shrink(self) -> None:
        self.isr.discard(self.random.choice([each for each in range(len(self.logs)) if each != self.leader]))
        self.commit()

    def fail(self) -> None:
        others = self.isr - {self.leader}
        if others:
            self.isr.discard(self.leader)
            self.lead(self.random.choice(sorted(others)))
        else:
            self.lead(self.leader)

    def checkpoint(self) -> None:
        replica = self.random.randrange(len(self.logs))
        self.high_watermarks[replica] = same(self.committed, self.logs[replica])

    def retention(self) -> None:
        for replica, known in enumerate(self.high_watermarks):
            self.starts[replica] = self.random.randint(0, known)

    def replica(self, number: int) -> Replica:
        start = self.starts[number]
        following = [*(each.start_offset for each in self.epochs[number][1:]), len(self.logs[number]) + 1]
        kept = [
            EpochEntry(each.epoch, max(start, each.start_offset))
            for each, end in zip(self.epochs[number], following, strict=False)
            if end > start
        ]
        known = Checkpoints(tuple(kept), self.high_watermarks[number])
        return Replica(Path(f"/broker-{number}/orders-0"), start, len(self.logs[number]), known)


@pytest.mark.parametrize("seed", range(300))
def test_what_is_chosen_is_what_was_committed(seed: int) -> None:
    random = Random(seed)
    partition = ModelPartition(random)
    for _ in range(random.randint(1, 80)):
        partition.step()
    partition.retention()
    seen = random.sample(range(3), random.randint(2, 3))
    replicas = [partition.replica(each) for each in seen]

    def known_end(each: Replica) -> int:
        return min(each.end, each.checkpoints.high_watermark or 0)

    def read(leader: LeaderEnd | None) -> list[int]:
        choice = choose_replicas(replicas, leader)
        offsets: list[int] = []
        for share in choice.shares:
            log = partition.logs[int(share.replica.directory.parts[1][-1])]
            assert log[share.start : share.end] == partition.committed[share.start : share.end]
            offsets += range(share.start, share.end)
        return offsets

    end = max(partition.high_watermarks[each] for each in seen)
    got = read(None)
    assert got == sorted(set(got))
    assert not got or got[-1] < end
    for offset in set(range(end)) - set(got):  # no replica has it, or shows that it was committed
        assert not any(each.start <= offset < known_end(each) for each in replicas)
    reported = read(LeaderEnd(partition.epoch, len(partition.committed)))
    assert reported == sorted(set(reported))


def replica(
    name: str,
    end: int,
    *epochs: tuple[int, int],
    high_watermark: int | None = None,
    start: int = 0,
    cleaned: bool = False,
) -> Replica:
    entries = tuple(EpochEntry(*each) for each in epochs)
    return Replica(Path(f"/{name}/orders-0"), start, end, Checkpoints(entries, high_watermark, cleaned))


def chosen(*replicas: Replica, leader: LeaderEnd | None = None) -> list[tuple[str, int, int]]:
    found = choose_replicas(replicas, leader).shares
    return [(each.replica.directory.parts[1], each.start, each.end) for each in found]


def test_without_a_high_watermark_the_newest_leader_decides() -> None:
    old = replica("old", 100, (0, 0))
    new = replica("new", 80, (0, 0), (1, 60))
    assert chosen(old, new) == chosen(new, old) == [("new", 0, 80)]


def test_a_high_watermark_that_an_unclean_election_took_back_does_not_count() -> None:
    old = replica("old", 100, (0, 0), high_watermark=100)
    new = replica("new", 90, (0, 0), (2, 50), high_watermark=70)
    assert chosen(old, new) == [("new", 0, 70)]


def test_a_single_directory_is_read_to_its_end() -> None:
    assert chosen(replica("only", 100, (0, 0), high_watermark=40)) == [("only", 0, 100)]


def test_another_replica_serves_what_lies_before_unless_a_cleaner_was_at_work() -> None:
    long, short = (
        replica("long", 50, (0, 0), high_watermark=40),
        replica("short", 90, (0, 30), high_watermark=90, start=30),
    )
    assert chosen(long, short) == [("long", 0, 30), ("short", 30, 90)]
    cleaned = replica("long", 50, (0, 0), high_watermark=40, cleaned=True)
    assert chosen(cleaned, short) == [("short", 30, 90)]


def test_the_tail_of_an_old_leader_is_not_read_even_when_the_leader_goes_further() -> None:
    old = replica("old", 100, (0, 0), high_watermark=60)
    assert chosen(old, leader=LeaderEnd(1, 500)) == [("old", 0, 60)]
    assert chosen(old, leader=LeaderEnd(0, 500)) == [("old", 0, 100)]
    assert chosen(old, leader=LeaderEnd(-1, 80)) == [("old", 0, 80)]
    assert chosen(replica("old", 100, (0, 0)), leader=LeaderEnd(1, 500)) == [("old", 0, 0)]


def test_replicas_of_which_nothing_is_known_are_refused() -> None:
    with pytest.raises(UsageError, match="orders-0 is in two places"):
        choose_replicas([replica("a", 10), replica("b", 10)])
