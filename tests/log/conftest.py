"""What tests of a partition's life have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stratalog.config.topic import LogConfig
from stratalog.log.partition_log import PartitionLog
from stratalog.testing.clock import ManualClock

OpenLog = Callable[..., PartitionLog]


@pytest.fixture
def manual_clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_log(tmp_path: Path, manual_clock: ManualClock) -> OpenLog:
    """Open `foo-0` with a configuration of `LogConfig` fields on the simulated clock, again and again if wanted."""

    def open_(*, clean: bool = True, log_start_offset: int = 0, recovery_point: int = 0, **config: Any) -> PartitionLog:
        fields: dict[str, Any] = {"retention_ms": -1, "file_delete_delay_ms": 0} | config
        return PartitionLog.open(
            tmp_path / "foo-0",
            LogConfig(**fields),
            clock=manual_clock,
            clean_shutdown=clean,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
        )

    return open_
