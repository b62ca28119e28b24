"""What every test gets, and how tests are spread over processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

#: Tests that start a JVM. Those of a kind share one worker, and what it has started: a Kafka, or a Spark session.
JVM_KINDS = ("interop", "spark")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: half of the time a worker waits for another process."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep each file's tests on one worker (its fixtures are made once), and all JVM tests of a kind on the same one.

    Takes effect under `--dist loadgroup`, which `./run-tests` asks for.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(name=_group(item)))


def _group(item: pytest.Item) -> str:
    parts = item.path.relative_to(TESTS).parts if item.path.is_relative_to(TESTS) else item.path.parts
    for kind in JVM_KINDS:
        if parts[0] == kind or item.get_closest_marker(kind):
            return kind
    return "/".join(parts)
