"""What every test gets, and how tests are spread over processes."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent

#: Tests that start a JVM. They share one worker, so that no two of them hold a JVM's memory at the same time.
JVM_MARKERS = ("interop", "spark")
JVM_DIRECTORIES = ("interop", "spark")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep each file's tests on one worker (its fixtures are made once), and all JVM tests on the same one.

    Takes effect under `--dist loadgroup`, which `./run-tests` asks for.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(name=_group(item)))


def _group(item: pytest.Item) -> str:
    parts = item.path.relative_to(TESTS).parts if item.path.is_relative_to(TESTS) else item.path.parts
    if parts[0] in JVM_DIRECTORIES or any(item.get_closest_marker(name) for name in JVM_MARKERS):
        return "jvm"
    return "/".join(parts)
