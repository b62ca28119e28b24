"""Levels of `metadata.version` and what comes with them are Kafka 4.4.0's, name by name."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from stratalog.config.metadata_version import METADATA_VERSION, VERSIONS
from stratalog.config.other_features import level_with
from tests.support.reference_jars import BROKER_JARS, SHORT_LIVED, classpath, java
from tests.support.reference_kafka import require_reference_kafka

pytestmark = pytest.mark.interop

PROGRAM = Path(__file__).parent / "MetadataVersions.java"


@pytest.fixture(scope="module")
def reported() -> list[list[str]]:
    require_reference_kafka()
    command = [java(), *SHORT_LIVED, "-cp", classpath(BROKER_JARS), str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def test_levels_names_and_changes_of_metadata_are_kafkas(reported: list[list[str]]) -> None:
    ours = [[str(known.level), known.name, str(known.metadata_changed).lower()] for known in VERSIONS]
    assert ours == [words[:3] for words in reported]


def test_a_release_has_the_features_that_it_has_in_kafka(reported: list[list[str]]) -> None:
    for level, name, _, *features in reported:
        for feature, default in (text.split("=") for text in features):
            assert level_with(feature, int(level)) == int(default), (name, feature)
        assert level_with(METADATA_VERSION, int(level)) is None
