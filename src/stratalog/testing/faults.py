"""The faults of a broker under test: an object store that is away or slow, and disks that are full or dying."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

from stratalog.remote.storage import ForwardingObjectStore, ObjectStoreRemoteStorageManager
from stratalog.remote.tier import RemoteLogManager
from stratalog.testing.failing_filesystem import CHANGES, FailingFileSystem
from stratalog.testing.faulty_store import FaultPlan, FaultyObjectStore, StoreFault

_Result = TypeVar("_Result")


class BrokerFaults:
    """The faults to inject until `heal`. Thread-safe.

        broker.faults.store_down()
        ...
        broker.faults.heal()

    `store_*` need a broker with a remote tier. Disks are those of the log directories; the broker's own settings are
    not kept by them.
    """

    def __init__(
        self, fs: FailingFileSystem, data_dirs: Callable[[], list[Path]], remote: Callable[[], RemoteLogManager | None]
    ) -> None:
        self._fs = fs
        self._data_dirs = data_dirs
        self._remote = remote
        self._store: _SlowFaultPlan | None = None
        self._failing: set[Path] = set()

    def store_down(self) -> None:
        """Let every call on the object store fail in a way that may pass, as while the network is away."""
        self._between().always(StoreFault.UNAVAILABLE)

    def store_denied(self) -> None:
        """Let every call on the object store fail in a way that does not pass, as with credentials that have ended."""
        self._between().always(StoreFault.DENIED)

    def store_slow(self, seconds: float = 0.1) -> None:
        """Let every call on the object store take so much longer, in the time of the real world."""
        self._between().pause_s = seconds

    def disk_full(self, directory: Path | None = None) -> None:
        """Let every write to a log directory fail for want of space; None: to all of them."""
        self._fail(directory, errno.ENOSPC, {"write", "make"})

    def fsync_fails(self, directory: Path | None = None) -> None:
        """Let every flush to a log directory fail: the broker gives the directory up."""
        self._fail(directory, errno.EIO, {"sync"})

    def disk_dead(self, directory: Path | None = None) -> None:
        """Let whatever changes a log directory fail: the broker gives the directory up."""
        self._fail(directory, errno.EIO, CHANGES)

    def heal(self) -> None:
        """Nothing fails any more. A directory that the broker gave up stays so until it starts again, as in Kafka."""
        if self._store is not None:
            self._store.heal()
            self._store.pause_s = 0.0
        for directory in self._failing:
            self._fs.mend(directory)
        self._failing.clear()

    def _fail(self, directory: Path | None, error: int, operations: Collection[str]) -> None:
        for each in self._data_dirs() if directory is None else [directory]:
            self._fs.fail(each, error, operations)
            self._failing.add(each)

    def _between(self) -> _SlowFaultPlan:
        """Return what the calls on the store ask; a store that asks is put before the broker's with the first fault."""
        if self._store is None:
            remote = self._remote()
            if remote is None or not isinstance(remote.storage, ObjectStoreRemoteStorageManager):
                raise ValueError("the broker has no object store: set remote.log.storage.system.enable=true")
            outer = remote.storage.store
            assert isinstance(outer, ForwardingObjectStore), "calls have a deadline"
            self._store = _SlowFaultPlan()
            outer.inner = FaultyObjectStore(outer.inner, self._store)
        return self._store


class _SlowFaultPlan(FaultPlan):
    pause_s = 0.0

    def step(self, what: str, work: Callable[[], _Result]) -> _Result:
        time.sleep(self.pause_s)
        return super().step(what, work)
