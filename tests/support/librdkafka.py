"""librdkafka with its own tests, built once from the package of confluent-kafka-javascript, which carries both."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

from tests.support.client_suites import build, built, need

PACKAGE = "@confluentinc/kafka-javascript@1.10.1"
LIBRDKAFKA = "2.15.1"

#: Topics that some tests ask for on three brokers: in this copy they get one replica.
_THREE_REPLICAS = re.compile(r"(test_create_topic_wait_exists\(\w+, \w+, \w+), 3, 5000\)")


def librdkafka() -> Path:
    """Where it is built: `src`, `src-cpp` and `tests`."""
    return built(f"librdkafka-{LIBRDKAFKA}", _compile)


def _compile(home: Path) -> None:
    need("npm", "bash", "make", "gcc", "g++")
    build(["npm", "pack", "--silent", PACKAGE], home)
    with tarfile.open(next(home.glob("*.tgz"))) as archive:
        archive.extractall(home, filter="data")
    source = home / "package" / "deps" / "librdkafka"
    for each in source.iterdir():
        each.rename(home / each.name)
    for test in (home / "tests").glob("0*.c*"):
        test.write_text(_THREE_REPLICAS.sub(r"\1, 1, 5000)", test.read_text()))
    build(["bash", "configure", "--disable-gssapi"], home)
    build(["make", "-j2", "libs"], home)
    build(["make", "-C", "tests", "-j2", "test-runner"], home)
