"""kafka-python's own integration tests, as its source package carries them, against our broker and Kafka's.

The package leaves out one file of its tests, `test/service.py`: it only tells a broker that runs already from one to
be started, and the few lines of it that are needed stand here.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.client_suites import BROKERS, OURS, Outcome, Server, build, built, run, served

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.timeout(1200)]

KAFKA_PYTHON = "3.0.12"

SERVICE = """
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

class SpawnedService:
    pass
"""

#: The client takes at most what it knows for the broker's version.
NEWEST_VERSION_KNOWN = "4.3.0"

#: These start a Kafka of their own, with its scripts; `test_clients_over_sasl_ssl.py` has their subject.
NOT_RUN = ("test_sasl_integration.py", "test_ssl_integration.py")

#: What fails against our broker, and why.
EXPLAINED_OURS: dict[str, str] = {}


@pytest.fixture(scope="module", params=BROKERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(request.param, tmp_path_factory.mktemp("kafka_python")) as server:
        yield server


def test_the_integration_tests(server: Server) -> None:
    kafka_python_outcome(server.plain).holds(EXPLAINED_OURS if server.name == OURS else {}, at_least=50)


def kafka_python_outcome(address: str, login: Mapping[str, str] | None = None) -> Outcome:
    """Of its integration tests. `login` has settings for every client that they make."""
    home = built(f"kafka-python-{KAFKA_PYTHON}", _fetch)
    source = home / f"kafka_python-{KAFKA_PYTHON}"
    command = [sys.executable, "-m", "pytest", "-v", "--tb=short", "-W", "ignore", "-p", "no:cacheprovider"]
    command += ["-c", "/dev/null", "--rootdir=.", "test/integration"]
    command += [f"--ignore=test/integration/{name}" for name in NOT_RUN]
    if login:
        command += ["-p", "kafka_python_login"]
    printed = run(
        command,
        source,
        500,
        PYTHONPATH=f"{source}{os.pathsep}{Path(__file__).parent}",
        KAFKA_LOGIN=json.dumps(login),
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
        KAFKA_ROOT=str(home),
        KAFKA_URI=f"kafka://{address}",
        KAFKA_VERSION=NEWEST_VERSION_KNOWN,
    )
    return _outcome(printed)


def _fetch(home: Path) -> None:
    build([sys.executable, "-m", "venv", "venv"], home)
    pip = [str(home / "venv" / "bin" / "python"), "-m", "pip"]
    build([*pip, "download", "-q", "--no-deps", "--no-binary=:all:", "-d", ".", f"kafka-python=={KAFKA_PYTHON}"], home)
    with tarfile.open(next(home.glob("*.tar.gz"))) as archive:
        archive.extractall(home, filter="data")
    tests = home / f"kafka_python-{KAFKA_PYTHON}" / "test"
    (tests / "__init__.py").touch()
    (tests / "service.py").write_text(SERVICE)


_RESULT = re.compile(r"^test/integration/(\S+::\S+) .*?(PASSED|FAILED|SKIPPED|ERROR)", re.MULTILINE | re.DOTALL)


def _outcome(printed: str) -> Outcome:
    """A test that was begun and did not end has failed."""
    by_word: dict[str, set[str]] = {"PASSED": set(), "FAILED": set(), "SKIPPED": set(), "ERROR": set()}
    for name, word in _RESULT.findall(printed):
        by_word[word].add(name)
    begun = re.findall(r"^test/integration/(\S+::\S+)", printed, re.MULTILINE)
    unfinished = set(begun) - set().union(*by_word.values())
    return Outcome(
        frozenset(by_word["PASSED"]),
        frozenset(by_word["FAILED"] | by_word["ERROR"] | unfinished),
        frozenset(by_word["SKIPPED"]),
        printed,
    )
