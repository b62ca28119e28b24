"""Kafka and our broker compact the same kind of topic, and go on with each other's directory and cleaner checkpoint."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from stratalog.log.format.checkpoints import CLEANER_OFFSETS, OffsetCheckpoint
from tests.interop.test_swapped_directories import swap
from tests.support.compacted_topic import TOPIC, Users
from tests.support.killable_broker import KillableBroker
from tests.support.reference_kafka import ReferenceKafka, require_reference_kafka
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

SETTINGS = {
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.dedupe.buffer.size": "2400000",
    "log.initial.task.delay.ms": "100",
}
KEY = (TOPIC, 0)


@dataclass
class OfKafka:
    """Kafka, as the compacted topic's client knows a broker."""

    kafka: ReferenceKafka

    @property
    def address(self) -> str:
        return self.kafka.bootstrap_servers

    @property
    def data_dir(self) -> Path:
        return self.kafka.data_dir


def swap_checkpoints(one: Path, other: Path) -> None:
    """Each directory's checkpoint gets what the other's says of the topic."""
    files = [OffsetCheckpoint(path / CLEANER_OFFSETS) for path in (one, other)]
    offsets = [file.read() for file in files]
    for file, own, others in zip(files, offsets, offsets[::-1], strict=True):
        file.write(own | {KEY: others[KEY]})


def wait_until_clean(users: Users) -> None:
    wait_until(lambda: users.cleaned_to() == users.sealed_end() > 0, f"{users.directory} is clean")


@pytest.mark.parametrize(
    "how",
    [pytest.param(signal.SIGTERM, id="stopped", marks=pytest.mark.soak), pytest.param(signal.SIGKILL, id="killed")],
)
def test_each_goes_on_where_the_other_was_clean(tmp_path: Path, how: signal.Signals) -> None:
    require_reference_kafka()
    with (
        ReferenceKafka(tmp_path / "kafka", config=SETTINGS) as kafka,
        KillableBroker(tmp_path / "ours", settings=SETTINGS | {"min.topic.segment.ms": "1"}) as ours,
    ):
        theirs = OfKafka(kafka)
        of_kafka, of_ours = Users(theirs), Users(ours)
        for users in (of_kafka, of_ours):
            users.produce(4_000)
            users.produce(400)
            wait_until_clean(users)
        compacted = [users.check() for users in (of_kafka, of_ours)]
        assert max(compacted) < 1_500
        kafka.kill() if how is signal.SIGKILL else kafka.stop()
        ours.end(how)
        swap(of_kafka.directory, of_ours.directory)
        swap_checkpoints(theirs.data_dir, ours.data_dir)
        of_kafka.broker, of_ours.broker = ours, theirs
        clean_before = [users.cleaned_to() for users in (of_kafka, of_ours)]
        ours.start()
        kafka.start()
        assert [users.check() for users in (of_kafka, of_ours)] == compacted
        for users, before in zip((of_kafka, of_ours), clean_before, strict=True):
            assert users.cleaned_to() == before  # believed: not reset, and nothing was dirty
            users.produce(400)
            wait_until_clean(users)
            assert users.cleaned_to() > before
            users.check()
        assert "Resetting first dirty offset" not in kafka.log_path.read_text()
        assert not list(of_ours.directory.glob("*.cleaned")) + list(of_kafka.directory.glob("*.cleaned"))
