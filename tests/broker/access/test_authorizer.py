"""The authorizer decides as its rules read, whatever was added and removed before."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor, wait
from random import Random
from threading import Event

import pytest
from tests.support.access_rules import ANY_NAME, Question, RuleWorld, random_world

from stratalog.broker.access import (
    Acl,
    AclFilter,
    AclOperation,
    Authorizer,
    PatternType,
    Permission,
    ResourceType,
    authorizer,
)

ALICE, HOST = "User:alice", "10.0.0.1"


def plain_answer(world: RuleWorld, question: Question) -> bool:
    """Each rule looked at for itself: the model."""

    def is_about(acl: Acl) -> bool:
        if acl.resource_type is not question.resource_type:
            return False
        if acl.pattern_type is PatternType.PREFIXED:
            return question.name.startswith(acl.name)
        return acl.name == question.name or (acl.name == "*" and not question.name.startswith("*"))

    def concerns(acl: Acl) -> bool:
        return acl.principal in ("User:*", question.principal) and reaches(acl.host, question.host)

    implied = {
        AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
        AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
    }.get(question.operation, set())
    exact = {question.operation, AclOperation.ALL}
    if question.principal in world.super_users:
        return True
    about = [acl for acl in world.acls if is_about(acl)]
    if not about:
        return world.allow_if_no_acl
    mine = [acl for acl in about if concerns(acl)]
    if any(acl.permission is Permission.DENY and acl.operation in exact for acl in mine):
        return False
    return any(acl.permission is Permission.ALLOW and acl.operation in exact | implied for acl in mine)


def reaches(host: str, address: str) -> bool:
    """Whether a rule for `host` is for a client at `address`; the test's ranges are written out here."""
    first, second, loopback = "10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1"
    members = {
        "*": {first, second, loopback},
        "10.0.0.0/31": {first},
        "10.0.0.1/32": {first},
        "10.0.0.3/30": {first, second},
        "0.0.0.0/0": {first, second},
        "0:0:0:0:0:0:0:0/8": {loopback},
        "::1/128": {loopback},
        "10.0.0.0/33": set(),
    }
    return address in members.get(host, {host})


def authorizer_of(world: RuleWorld) -> Authorizer:
    return Authorizer(world.acls, super_users=world.super_users, allow_if_no_acl=world.allow_if_no_acl)


def answer(authorizer: Authorizer, question: Question) -> bool:
    return authorizer.decide(
        question.principal, question.host, question.operation, question.resource_type, question.name
    ).allowed


@pytest.mark.parametrize("seed", range(40))
def test_a_decision_is_what_the_rules_say_one_by_one(seed: int) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    for _ in range(15):
        world = random_world(random, 20)
        authorizer = authorizer_of(world)
        for question in (each for each in world.questions if each.name != ANY_NAME):
            assert answer(authorizer, question) == plain_answer(world, question), (world, question)


@pytest.mark.parametrize("seed", range(10))
def test_what_was_removed_leaves_no_trace(seed: int) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    for _ in range(10):
        kept, gone = random_world(random, 20), random_world(random, 0)
        fresh, worn = authorizer_of(kept), authorizer_of(kept)
        more = [acl for acl in gone.acls if acl not in kept.acls]
        worn.add(more)
        before = [answer(worn, each) for each in kept.questions]
        assert len(before) == len(kept.questions)
        worn.remove(more)
        assert [answer(worn, each) for each in kept.questions] == [answer(fresh, each) for each in kept.questions]
        assert worn.matching(AclFilter()) == fresh.matching(AclFilter())


def acl(name: str, pattern: PatternType, operation: AclOperation, permission: Permission) -> Acl:
    return Acl(ResourceType.TOPIC, name, pattern, ALICE, "*", operation, permission)


def test_deny_of_a_prefix_counts_before_allow_of_the_name() -> None:
    authorizer = Authorizer(
        [
            acl("orders", PatternType.LITERAL, AclOperation.READ, Permission.ALLOW),
            acl("ord", PatternType.PREFIXED, AclOperation.ALL, Permission.DENY),
        ]
    )
    verdict = authorizer.decide(ALICE, HOST, AclOperation.READ, ResourceType.TOPIC, "orders")
    assert not verdict.allowed
    assert verdict.rule.startswith("MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=ord, ")


def test_a_change_is_seen_by_the_next_decision() -> None:
    authorizer = Authorizer()
    rule = acl("orders", PatternType.LITERAL, AclOperation.READ, Permission.ALLOW)
    asked = (ALICE, HOST, AclOperation.DESCRIBE, ResourceType.TOPIC, "orders")
    changes: list[None] = []
    authorizer.on_change = lambda: changes.append(None)
    assert not authorizer.decide(*asked).allowed
    authorizer.add([rule])
    assert authorizer.decide(*asked).allowed
    authorizer.remove([rule])
    assert not authorizer.decide(*asked).allowed
    assert len(changes) == 2


def test_a_filter_that_matches_finds_what_says_something_about_a_name() -> None:
    rules = [
        acl("orders", PatternType.LITERAL, AclOperation.READ, Permission.ALLOW),
        acl("ord", PatternType.PREFIXED, AclOperation.READ, Permission.ALLOW),
        acl("*", PatternType.LITERAL, AclOperation.READ, Permission.ALLOW),
        acl("orders.eu", PatternType.LITERAL, AclOperation.READ, Permission.ALLOW),
    ]
    found = Authorizer(rules).matching(AclFilter(ResourceType.TOPIC, "orders", PatternType.MATCH))
    assert found == rules[:3]
    assert Authorizer(rules).matching(AclFilter(ResourceType.TOPIC, "ord", PatternType.PREFIXED)) == rules[1:2]
    assert Authorizer(rules).matching(AclFilter(ResourceType.TOPIC, "orders", PatternType.ANY)) == rules[:1]


def test_long_names_that_a_client_makes_up_are_not_kept_in_memory() -> None:
    allow = Acl(ResourceType.TOPIC, "long-", PatternType.PREFIXED, ALICE, "*", AclOperation.READ, Permission.ALLOW)
    authorizer = Authorizer([allow])
    tracemalloc.start()
    try:
        for number in range(200):
            name = f"long-{number}-" + "x" * 100_000
            assert authorizer.decide(ALICE, HOST, AclOperation.READ, ResourceType.TOPIC, name).allowed
            assert not authorizer.decide(ALICE, HOST, AclOperation.WRITE, ResourceType.TOPIC, name).allowed
            del name
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000


def test_no_verdict_outlives_the_rules_it_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker thread decides on a large request while the loop changes the rules."""
    allow, deny = (
        Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, ALICE, "*", AclOperation.READ, permission)
        for permission in (Permission.ALLOW, Permission.DENY)
    )
    decider = Authorizer([allow])
    asked = (ALICE, HOST, AclOperation.READ, ResourceType.TOPIC, "t")
    is_deciding, may_end = Event(), Event()
    concerns = authorizer._concerns

    def slow(acl: Acl, principal: str, host: str) -> bool:
        is_deciding.set()
        assert may_end.wait(60)
        return concerns(acl, principal, host)

    monkeypatch.setattr(authorizer, "_concerns", slow)
    with ThreadPoolExecutor(2) as threads:
        decided = threads.submit(decider.decide, *asked)
        assert is_deciding.wait(60)
        changed = threads.submit(decider.add, [deny])
        wait([changed], timeout=0.05)  # a change that does not wait for the decision is over by now
        may_end.set()
        assert decided.result(60).allowed
        changed.result(60)
    assert not decider.decide(*asked).allowed
