"""franz-go's own integration tests, as its module carries them, against our broker and Kafka's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client_suites import BROKERS, Outcome, Server, build, built, go_module, go_outcome, run, served

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.timeout(1800)]

FRANZ_GO = "v1.22.2"

SETTINGS = {"share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1"}

#: These leave themselves out where a broker has no share groups.
SHARE_GROUPS = {"TestShareGroup", "TestShareGroupAckOnClose", "TestShareGroupETL", "TestShareGroupOffsetsAdmin"}


@pytest.fixture(scope="module", params=BROKERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(request.param, tmp_path_factory.mktemp("franz_go"), SETTINGS) as server:
        yield server


def test_kgo(server: Server) -> None:
    """Groups of both protocols with every balancer, share groups, transactions, regular expressions, purges."""
    outcome = kgo_outcome(KGO_SEEDS=server.plain)
    outcome.holds({}, at_least=140)
    assert outcome.passed >= SHARE_GROUPS


def kgo_outcome(*arguments: str, **environment: str) -> Outcome:
    """Of a run with these arguments of Go's and these settings of the suite's."""
    package = go_module("github.com/twmb/franz-go", FRANZ_GO) / "pkg" / "kgo"
    home = built(f"kgo-{FRANZ_GO}", lambda home: _compile(package, home / "kgo.test"))
    command = [str(home / "kgo.test"), "-test.v", "-test.timeout=15m", *arguments]
    settings = {"KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "50000", "KGO_LOG_LEVEL": "none"}
    return go_outcome(run(command, package, 1000, **settings, **environment))


def _compile(package: Path, program: Path) -> None:
    build(["go", "test", "-c", "-o", str(program), "."], package)
