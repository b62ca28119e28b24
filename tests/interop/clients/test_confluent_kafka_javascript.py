"""confluent-kafka-javascript, whose package carries no tests: a program walks its whole API, against our broker and
Kafka's, with groups of both protocols.

Its native part is built over the librdkafka of the same package.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client_suites import BROKERS, Outcome, Server, build, built, need, run, served
from tests.support.librdkafka import PACKAGE, librdkafka

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.timeout(1200)]

CONFLUENT_KAFKA_JAVASCRIPT = PACKAGE.rpartition("@")[2]
WALK = Path(__file__).with_name("confluent_walk.js")
CODECS = 3
PARTS = len(re.findall(r"^  async '", WALK.read_text(), re.MULTILINE)) + CODECS


@pytest.fixture(scope="module", params=BROKERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(request.param, tmp_path_factory.mktemp("confluent"), {"auto.create.topics.enable": "false"}) as server:
        yield server


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_walk_of_its_api(server: Server, protocol: str) -> None:
    confluent_walk(BROKER=server.plain, PROTOCOL=protocol).holds({}, at_least=PARTS)


def confluent_walk(**environment: str) -> Outcome:
    need("node", "npm", "make", "g++")
    library = librdkafka()
    home = built(f"confluent-kafka-javascript-{CONFLUENT_KAFKA_JAVASCRIPT}", lambda home: _build_package(home, library))
    printed = run(
        ["node", str(WALK)],
        home,
        500,
        NODE_PATH=str(home / "node_modules"),
        LD_LIBRARY_PATH=f"{library / 'src'}:{library / 'src-cpp'}",
        **environment,
    )
    passed = re.findall(r"^ok (.+)$", printed, re.MULTILINE)
    failed = re.findall(r"^not ok ([^:]+):", printed, re.MULTILINE)
    ended = [] if printed.endswith("end\n") else ["the walk itself"]
    return Outcome(frozenset(passed), frozenset([*failed, *ended]), frozenset(), printed)


def _build_package(home: Path, library: Path) -> None:
    """Its own way to a binary is a download; the scripts of the package that would do so are not run."""
    build(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(home), PACKAGE], home)
    package = home / "node_modules" / "@confluentinc" / "kafka-javascript"
    node = os.path.dirname(os.path.dirname(os.path.realpath(shutil.which("node") or "")))
    headers = [f"--nodedir={node}"] if os.path.exists(f"{node}/include/node/node.h") else []
    found = {
        "BUILD_LIBRDKAFKA": "0",
        "CPATH": f"{library / 'src'}:{library / 'src-cpp'}",
        "LIBRARY_PATH": f"{library / 'src'}:{library / 'src-cpp'}",
    }
    build(["npm", "run", "configure", "--", *headers], package, **found)
    build(["npm", "run", "build"], package, JOBS="1", **found)
