"""One Kafka for all of these tests. A test may stop it and start it again; it leaves it running."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import stratalog
from tests.support.reference_kafka import ReferenceKafka, require_reference_kafka


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceKafka]:
    require_reference_kafka()
    with ReferenceKafka(tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[stratalog.Broker]:
    """Ours, empty."""
    with stratalog.Broker(data_dir=tmp_path / "broker", listen="127.0.0.1:0") as broker:
        yield broker
