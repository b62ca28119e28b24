"""KafkaJS, whose package carries no tests: a program walks its whole API, against our broker and Kafka's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client_suites import BROKERS, Outcome, Server, build, built, need, run, served

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.timeout(600)]

KAFKAJS = "2.2.4"
WALK = Path(__file__).with_name("kafkajs_walk.js")
PARTS = len(re.findall(r"^  async '", WALK.read_text(), re.MULTILINE))


@pytest.fixture(scope="module", params=BROKERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(request.param, tmp_path_factory.mktemp("kafkajs"), {"auto.create.topics.enable": "false"}) as server:
        yield server


def test_a_walk_of_its_api(server: Server) -> None:
    kafkajs_walk(BROKER=server.plain).holds({}, at_least=PARTS)


def kafkajs_walk(**environment: str) -> Outcome:
    need("node", "npm")
    home = built(f"kafkajs-{KAFKAJS}", lambda home: build_package(home, f"kafkajs@{KAFKAJS}"))
    printed = run(["node", str(WALK)], home, 300, NODE_PATH=str(home / "node_modules"), **environment)
    passed = re.findall(r"^ok (.+)$", printed, re.MULTILINE)
    failed = re.findall(r"^not ok ([^:]+):", printed, re.MULTILINE)
    ended = [] if printed.endswith("end\n") else ["the walk itself"]
    return Outcome(frozenset(passed), frozenset([*failed, *ended]), frozenset(), printed)


def build_package(home: Path, package: str) -> None:
    build(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(home), package], home)
