"""Our assignors give what Kafka's give, partition by partition: groups that change, by seed."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

import pytest

from stratalog.broker.groups.consumer.assignment_input import (
    AssignmentInput,
    MemberInput,
    as_read_back,
    member_order,
    name_order,
)
from stratalog.broker.groups.consumer.target_update import ASSIGNORS
from stratalog.broker.groups.modern import Target
from tests.support.reference_jars import BROKER_JARS, SHORT_LIVED, classpath, java
from tests.support.reference_kafka import require_reference_kafka

pytestmark = pytest.mark.interop

PROGRAM = Path(__file__).parent / "Assignors.java"
GROUPS, CHANGES = 120, 8
Rows = list[tuple[str, str, list[int]]]


class Group:
    """Members and topics that change at random."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.counts = {f"topic-{n}": rng.randint(1, 40) for n in range(rng.choice((1, 2, 3, 9, 14)))}
        self.ids = {name: UUID(int=rng.getrandbits(128)) for name in self.counts}
        self.assignor = rng.choice(("uniform", "uniform", "range"))
        self.alike = rng.random() < 0.5
        self.wanted: dict[str, frozenset[str]] = {}
        self.instances: dict[str, str | None] = {}
        self.targets: dict[str, Target] = {}
        self._everything = frozenset(self.counts) | ({"gone"} if rng.random() < 0.2 else set())
        for _ in range(rng.randint(1, 20)):
            self.add()

    def add(self) -> None:
        member_id = str(UUID(int=self.rng.getrandbits(128)))
        self.instances[member_id] = f"i{len(self.instances)}" if self.rng.random() < 0.2 else None
        some = [name for name in sorted(self._everything) if self.rng.random() < 0.6]
        self.wanted[member_id] = self._everything if self.alike else frozenset(some)

    def change(self) -> None:
        what = self.rng.random()
        if what < 0.45 or len(self.wanted) == 1:
            self.add()
        elif what < 0.85:
            member_id = self.rng.choice(sorted(self.wanted))
            del self.wanted[member_id], self.instances[member_id]
            self.targets.pop(member_id, None)
        else:
            self.counts[self.rng.choice(sorted(self.counts))] += self.rng.randint(1, 5)

    def lines(self) -> list[str]:
        lines = [f"topic {name} {_halves(self.ids[name])} {count}" for name, count in self.counts.items()]
        for member_id, wanted in self.wanted.items():
            lines.append(f"member {member_id} {self.instances[member_id] or '-'} {','.join(sorted(wanted)) or '-'}")
            for topic_id, partitions in self.targets.get(member_id, {}).items():
                name = next(name for name, known in self.ids.items() if known == topic_id)
                lines.append(f"target {member_id} {name} {','.join(map(str, partitions))}")
        return [*lines, f"assign {self.assignor} {str(self.alike).lower()}"]

    def assign(self) -> Rows:
        members = {
            member_id: MemberInput(
                self.instances[member_id],
                tuple(self.ids[n] for n in name_order(self.wanted[member_id], frozenset()) if n in self.ids),
                as_read_back(self.targets.get(member_id, {})),
            )
            for member_id in member_order(self.wanted)
        }
        owned = {
            (topic_id, each)
            for target in self.targets.values()
            for topic_id, partitions in target.items()
            for each in partitions
        }
        counts = {self.ids[name]: count for name, count in self.counts.items()}
        given = AssignmentInput(members, self.alike, lambda topic_id, each: (topic_id, each) in owned, counts)
        assigned: Mapping[str, Target] = ASSIGNORS[self.assignor](given)
        self.targets = {member_id: assigned.get(member_id, {}) for member_id in members}
        names = {topic_id: name for name, topic_id in self.ids.items()}
        return [
            (member_id, names[topic_id], list(partitions))
            for member_id, target in self.targets.items()
            for topic_id, partitions in target.items()
        ]


def _halves(topic_id: UUID) -> str:
    halves = (topic_id.int >> 64, topic_id.int & (1 << 64) - 1)
    return " ".join(str(half - (1 << 64) if half >> 63 else half) for half in halves)


def _sorted(rows: Rows) -> Rows:
    return sorted((member_id, name, sorted(partitions)) for member_id, name, partitions in rows)


def test_partitions_go_where_kafka_lets_them_go() -> None:
    require_reference_kafka()
    asked: list[str] = []
    ours: list[tuple[int, Rows]] = []
    for seed in range(GROUPS):
        group = Group(seed)
        for _ in range(CHANGES):
            asked += group.lines()
            ours.append((seed, group.assign()))
            group.change()
    command = [java(), *SHORT_LIVED, "-cp", classpath(BROKER_JARS), str(PROGRAM)]
    done = subprocess.run(command, input="\n".join(asked) + "\n", capture_output=True, text=True, check=True)
    theirs: list[Rows] = [[]]
    for line in done.stdout.splitlines():
        if line == "end":
            theirs.append([])
        else:
            member_id, name, partitions = line.split(" ")
            theirs[-1].append((member_id, name, [int(each) for each in partitions.split(",")]))
    assert len(theirs) == len(ours) + 1
    for (seed, rows), expected in zip(ours, theirs, strict=False):
        assert _sorted(rows) == _sorted(expected), f"seed {seed}"
