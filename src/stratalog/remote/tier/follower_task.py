"""Track how far the leader has copied, for replicas that copy nothing (Kafka's RLMFollowerTask)."""

from __future__ import annotations

from stratalog.remote.tier.copied_offset import find_highest_remote_offset
from stratalog.remote.tier.tiering_task import TieringTask
from stratalog.remote.tier.watchdog import StepKind


class FollowerTask(TieringTask):
    """Updates the deletion guard of one partition's local log from the metadata."""

    def run(self) -> int:
        """Return the highest offset copied to the remote tier, or -1."""
        self.progress.note(StepKind.METADATA, "the metadata of its remote segments")
        highest = find_highest_remote_offset(self._services.rlmm, self._partition, self._log)
        if highest > self._log.highest_offset_in_remote_storage:
            self._cancelled.unless_set(lambda: self._log.update_highest_offset_in_remote_storage(highest))
        return highest
