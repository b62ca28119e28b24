"""Random rules and questions get the same answers of Kafka's StandardAuthorizer and of ours."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from stratalog.broker.access import Authorizer
from tests.support.access_rules import ANY_NAME, Question, RuleWorld, random_world
from tests.support.reference_jars import BROKER_JARS, SHORT_LIVED, classpath, java
from tests.support.reference_kafka import require_reference_kafka

pytestmark = pytest.mark.interop

PROGRAM = Path(__file__).parent / "AuthorizerAnswers.java"
QUESTIONS_EACH = 20


def lines_of(world: RuleWorld) -> Iterator[str]:
    yield "\t".join(("WORLD", ";".join(world.super_users), str(world.allow_if_no_acl).lower()))
    for acl in world.acls:
        pattern = (acl.resource_type.name, acl.name, acl.pattern_type.name)
        yield "\t".join(("ACL", *pattern, acl.principal, acl.host, acl.operation.name, acl.permission.name))
    for asked in world.questions:
        question = (asked.principal, asked.host, asked.operation.name, asked.resource_type.name, asked.name)
        yield "\t".join(("ASK", *question))


def kafkas_answers(worlds: list[RuleWorld]) -> list[str]:
    options = [*SHORT_LIVED, "-Dfile.encoding=UTF-8", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    done = subprocess.run(
        [java(), *options, "-cp", classpath(BROKER_JARS), str(PROGRAM)],
        input="".join(f"{line}\n" for world in worlds for line in lines_of(world)),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    return done.stdout.split()


def our_answer(authorizer: Authorizer, asked: Question) -> str:
    who = (asked.principal, asked.host, asked.operation, asked.resource_type)
    verdict = authorizer.decide_any(*who) if asked.name == ANY_NAME else authorizer.decide(*who, asked.name)
    return "ALLOWED" if verdict.allowed else "DENIED"


@pytest.mark.parametrize(
    ("seed", "triples"), [(1, 2_000), pytest.param(2, 50_000, marks=pytest.mark.soak)], ids=["2000", "50000"]
)
def test_random_rules_are_applied_as_kafka_applies_them(seed: int, triples: int) -> None:
    require_reference_kafka()
    print(f"seed {seed}")
    random = Random(seed)
    worlds = [random_world(random, QUESTIONS_EACH) for _ in range(triples // QUESTIONS_EACH)]
    theirs = iter(kafkas_answers(worlds))
    answers: list[str] = []
    for world in worlds:
        authorizer = Authorizer(world.acls, super_users=world.super_users, allow_if_no_acl=world.allow_if_no_acl)
        for asked in world.questions:
            ours = our_answer(authorizer, asked)
            assert ours == next(theirs), (world, asked)
            answers.append(ours)
    assert len(answers) == triples
    assert min(answers.count("ALLOWED"), answers.count("DENIED")) > triples // 5
