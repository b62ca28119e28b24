"""The assignor of share groups: balanced, complete and steady, whatever changes."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from stratalog.broker.groups.modern import Target
from stratalog.broker.groups.share.simple_assignor import ShareAssignmentInput, assign_shares

A, B, C = (UUID(int=number) for number in (1, 2, 3))


def assigned(
    targets: dict[str, Target], topics: dict[str, list[UUID]], partitions: dict[UUID, list[int]]
) -> dict[str, Target]:
    are_alike = len({frozenset(each) for each in topics.values()}) == 1
    found = assign_shares(ShareAssignmentInput(targets, topics, partitions, are_alike))
    return {member: found.get(member, {}) for member in targets}


def held(target: Target) -> set[tuple[UUID, int]]:
    return {(topic, number) for topic, numbers in target.items() for number in numbers}


def test_members_share_partitions_when_there_are_more_of_them() -> None:
    members = [f"m{number}" for number in range(7)]
    found = assigned({each: {} for each in members}, {each: [A] for each in members}, {A: [0, 1, 2]})
    assert all(len(held(target)) <= 2 for target in found.values())
    assert {sum((A, number) in held(target) for target in found.values()) for number in range(3)} == {3}


def test_who_has_a_partition_keeps_it() -> None:
    before: dict[str, Target] = {"a": {A: (0, 1, 2, 3)}, "b": {}}
    found = assigned(before, {"a": [A], "b": [A]}, {A: [0, 1, 2, 3]})
    assert held(found["a"]) < held(before["a"])
    assert held(found["a"]) | held(found["b"]) == held(before["a"])
    assert assigned(found, {"a": [A], "b": [A]}, {A: [0, 1, 2, 3]}) == found


def test_only_what_may_be_read_is_given() -> None:
    found = assigned({"a": {}, "b": {}}, {"a": [A, B], "b": [A, B]}, {A: [1]})
    assert held(found["a"]) == held(found["b"]) == {(A, 1)}


def test_no_one_gets_anything_without_topics() -> None:
    assert assigned({"a": {A: (0,)}}, {"a": []}, {A: [0]}) == {"a": {}}


@pytest.mark.parametrize("seed", range(40))
def test_whatever_changes_each_partition_is_read_and_members_are_in_balance(seed: int) -> None:
    random = Random(seed)
    counts = {topic: random.randint(0, 6) for topic in (A, B, C)}
    partitions = {topic: list(range(count)) for topic, count in counts.items()}
    alike = bool(seed % 2)
    targets: dict[str, Target] = {}
    for step in range(12):
        if targets and random.random() < 0.4:
            del targets[random.choice(list(targets))]
        else:
            targets[f"m{step}"] = {}
        if not targets:
            continue
        same = random.sample([A, B, C], random.randint(1, 3))
        topics = {each: same if alike else random.sample([A, B, C], random.randint(1, 3)) for each in targets}
        targets = assigned(targets, topics, partitions)
        for member, target in targets.items():
            for topic, number in held(target):
                assert topic in topics[member] or (not alike and topic not in {t for ts in topics.values() for t in ts})
                assert number in partitions[topic]
        wanted = {
            (topic, number) for topics_of in topics.values() for topic in topics_of for number in partitions[topic]
        }
        got = [each for target in targets.values() for each in held(target)]
        assert wanted <= set(got)
        if len({frozenset(each) for each in topics.values()}) == 1:
            sizes = [len(held(target)) for target in targets.values()]
            assert max(sizes) - min(sizes) <= 1
