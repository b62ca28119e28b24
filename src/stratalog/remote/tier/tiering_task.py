"""Base class of the tasks of a tiered partition: copy, expiration and the follower's."""

from __future__ import annotations

from stratalog.remote.api import TopicIdPartition
from stratalog.remote.tier.cancellation import Cancellation
from stratalog.remote.tier.log_view import LogView
from stratalog.remote.tier.services import TierServices
from stratalog.remote.tier.watchdog import TaskProgress


class TieringTask:
    """A task of the tier over the local log of one partition."""

    def __init__(
        self,
        services: TierServices,
        log: LogView,
        partition: TopicIdPartition,
        *,
        progress: TaskProgress,
        cancelled: Cancellation,
    ) -> None:
        self._services = services
        self._log = log
        self._partition = partition
        self.progress = progress
        self._cancelled = cancelled
