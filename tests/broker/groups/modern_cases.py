"""What the tests of consumer, share and streams groups have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.consumer_offsets import stored_records
from tests.support.goldens import as_json

from stratalog.broker.coordinator_log import CoordinatorLog
from stratalog.broker.server.server import Broker
from stratalog.errors import NotCoordinatorError

#: The answers by step, and the records behind them.
Played = tuple[dict[str, Any], list[tuple[bytes, bytes | None]]]


def play(directory: Path, config: Mapping[str, str], run: Callable[[str], Any]) -> Played:
    """Let the steps of `run` go against a broker of ours."""
    with Broker(data_dir=directory, config={**config, "offsets.topic.num.partitions": "1"}) as broker:
        answers = as_json(run(broker.bootstrap_servers))
    return answers, [(key, value) for _, key, value in stored_records(directory)]


def check_read_and_written_back(
    stored: Iterable[tuple[bytes, bytes | None]],
    kinds: Iterable[Any],
    decode: Callable[[bytes, bytes | None], Any],
    encode: Callable[[str, Any], Any],
) -> None:
    """Check that records are the same bytes when they are written again, and that each kind is there and deleted."""
    seen = set()
    for key, value in stored:
        found = decode(key, value)
        if found is None:
            continue
        group_id, change = found
        seen.add((change.kind, value is None))
        assert encode(group_id, change) == (key, value)
    assert seen >= {(kind, is_tombstone) for kind in kinds for is_tombstone in (False, True)}


def short_sessions(kind: str) -> dict[str, str]:
    """Settings with which members of groups of a kind are given up after 0.3 s."""
    prefix = f"group.{kind}"
    return {
        f"{prefix}.min.session.timeout.ms": "1",
        f"{prefix}.session.timeout.ms": "300",
        f"{prefix}.min.heartbeat.interval.ms": "1",
        f"{prefix}.heartbeat.interval.ms": "100",
    }


@contextmanager
def refusing_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the coordinator's log refuse every append."""

    def refuse(*_: object) -> None:
        raise NotCoordinatorError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(CoordinatorLog, "append", refuse)
        yield
