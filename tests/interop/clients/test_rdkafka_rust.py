"""The integration tests of rdkafka for Rust, as its crate carries them, against our broker and Kafka's."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.client_suites import BROKERS, Outcome, Server, build, built, need, run, served

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.timeout(1500)]

RDKAFKA = "0.39.0"

#: What fails at both brokers, and why.
EXPLAINED: Mapping[str, str] = {
    "test_high_producers::test_future_producer_send": "the test asks for the broker at `localhost:9092`",
    "test_high_producers::test_future_producer_send_fail": "the test asks for the broker at `localhost:9092`",
    "test_metadata::test_metadata": "the test asks for the broker at port 9092",
}


@pytest.fixture(scope="module", params=BROKERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(request.param, tmp_path_factory.mktemp("rdkafka"), {"num.partitions": "3"}) as server:
        yield server


def test_the_integration_tests(server: Server) -> None:
    need("cargo", "cmake", "make")
    home = built(f"rdkafka-{RDKAFKA}", _compile)
    programs = sorted(path for path in (home / "target/debug/deps").glob("test_*") if path.suffix == "")
    passed: set[str] = set()
    failed: set[str] = set()
    printed = ""
    for program in programs:
        suite = program.name.rpartition("-")[0]
        said = run([str(program)], home, 200, KAFKA_HOST=server.plain, KAFKA_VERSION="4.0.0")
        results = re.findall(r"^test (\S+) \.\.\. .*?(ok|FAILED)$", said, re.MULTILINE | re.DOTALL)
        passed |= {f"{suite}::{name}" for name, word in results if word == "ok"}
        failed |= {f"{suite}::{name}" for name, word in results if word == "FAILED"}
        if "test result: " not in said:
            failed.add(f"{suite}::(its end)")
        printed += said if "test result: ok" not in said else ""
    Outcome(frozenset(passed), frozenset(failed), frozenset(), printed).holds(EXPLAINED, at_least=40)


def _compile(home: Path) -> None:
    """The crate comes through a package that depends on it."""
    (home / "src").mkdir()
    (home / "src" / "lib.rs").touch()
    (home / "Cargo.toml").write_text(
        f'[package]\nname = "fetches"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nrdkafka = "={RDKAFKA}"\n'
    )
    described = json.loads(build(["cargo", "metadata", "--format-version=1"], home))
    manifest = next(each["manifest_path"] for each in described["packages"] if each["name"] == "rdkafka")
    target = {"CARGO_TARGET_DIR": str(home / "target"), "CARGO_BUILD_JOBS": "1"}
    build(["cargo", "test", "--no-run", "--locked", "--tests"], Path(os.path.dirname(manifest)), **target)
