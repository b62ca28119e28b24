"""Random access rules, and random questions that they have something to say about."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from stratalog.broker.access import Acl, AclOperation, PatternType, Permission, ResourceType

PRINCIPALS = ("User:alice", "User:bob", "User:*", "User:root", "Group:alice", "User:al ice:x", "User:ALICE")
HOSTS = ("10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1")
RANGES = ("10.0.0.0/31", "10.0.0.1/32", "10.0.0.3/30", "0:0:0:0:0:0:0:0/8", "::1/128", "10.0.0.0/33", "0.0.0.0/0")
NAMES = ("*", "a", "ab", "abc", "abcd", "b", "+abc", "*x", "a.b", "ä", "hardcode", "hard")
TYPES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.USER)
OPERATIONS = [each for each in AclOperation if each > AclOperation.ALL]
#: In a question: is there any resource of the type?
ANY_NAME = "?"


@dataclass(frozen=True, slots=True)
class Question:
    principal: str
    host: str
    operation: AclOperation
    resource_type: ResourceType
    name: str


@dataclass(frozen=True, slots=True)
class RuleWorld:
    """A configured authorizer, and what it is asked."""

    super_users: tuple[str, ...]
    allow_if_no_acl: bool
    acls: tuple[Acl, ...]
    questions: tuple[Question, ...]


def random_world(random: Random, question_count: int) -> RuleWorld:
    # Few operations a world, so that rules meet.
    operations = random.sample(OPERATIONS, 3)
    if random.random() < 0.5:
        operations[0] = random.choice([AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS])
    principals, types = random.sample(PRINCIPALS, 3), random.sample(TYPES, 2)
    acls = {
        Acl(
            random.choice(types),
            random.choice(NAMES),
            random.choice([PatternType.LITERAL, PatternType.PREFIXED]),
            random.choice([*principals, "User:*"]),
            random.choice([*HOSTS, *RANGES, *["*"] * 8]),
            random.choice([*operations, random.choice(OPERATIONS), AclOperation.ALL]),
            random.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
        )
        for _ in range(random.choice([0, 1, 3, 8, 20]))
    }
    questions = tuple(
        Question(
            # A client that is called "*" ends in an error of Kafka's.
            random.choice([each for each in principals if each != "User:*"]),
            random.choice(HOSTS),
            random.choice(operations),
            random.choice(types),
            random.choice([*NAMES, "abcde", "abx", ANY_NAME, ANY_NAME]),
        )
        for _ in range(question_count)
    )
    supers = tuple(random.sample(PRINCIPALS, random.choice([0, 0, 1])))
    order = sorted(acls, key=str)
    random.shuffle(order)
    return RuleWorld(supers, random.random() < 0.3, tuple(order), questions)
