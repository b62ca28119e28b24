"""When what was appended is made durable, and what is known to be.

After a sync that failed nobody knows what is on the disk: the log then refuses every append and flush, until it is opened
anew.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from stratalog.log.local_log import LocalLog


class Flusher:
    """Moves the recovery point of a log. Thread-safe; the disk is waited for without the lock."""

    def __init__(self, local: LocalLog, lock: AbstractContextManager[object]) -> None:
        self._local = local
        self._lock = lock
        self._last_flush_ms = local.clock.now_ms()

    def flush(self, up_to: int | None = None) -> None:
        """Make every record below `up_to` (default: all) durable. KafkaStorageError when the disk refuses, or did."""
        local = self._local
        if local.sync_failed:
            raise local.unusable()
        end_offset = local.end.offset
        end = end_offset if up_to is None else min(up_to, end_offset)
        start = local.recovery_point
        if end <= start:
            return
        segments = [segment for segment in local.segments.from_offset(start) if segment.base_offset < end]
        try:
            for segment in segments:
                segment.flush()
            if any(segment.base_offset >= start for segment in segments):
                local.fs.sync_dir(local.directory)
        except OSError as error:
            local.sync_failed = True
            raise local.storage_error("flush", error) from error
        with self._lock:
            local.recovery_point = max(local.recovery_point, min(end, local.end.offset))
            self._last_flush_ms = local.clock.now_ms()

    def flush_if_due(self, now_ms: int) -> bool:
        """Flush what flush.ms says, or the segments that were sealed since; whether there was anything to do."""
        local = self._local
        if now_ms - self._last_flush_ms >= local.config.flush_ms and local.end.offset > local.recovery_point:
            self.flush()
            return True
        if local.sealed_end_offset > local.recovery_point:
            self.flush(local.sealed_end_offset)
            return True
        return False
