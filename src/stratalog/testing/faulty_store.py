"""An object store that fails on request, and a counter of steps at which a process may die.

    faults = Faults()
    store = FaultyObjectStore(inner, faults)
    faults.at(3, Fault.UNAVAILABLE)        # the third call from now on fails once
    faults.always(Fault.HANG)              # every call, until heal()
    faults.by(lambda what: ...)            # as the function says, until heal()

A simulated crash is no Exception: nothing but a test catches it, as nothing survives a real one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import TypeVar

from typing_extensions import Buffer

from stratalog.errors import RemoteStorageError, RetriableRemoteStorageError
from stratalog.remote.storage import ForwardingObjectStore, ObjectInfo, ObjectStore

_Result = TypeVar("_Result")


class StoreFault(Enum):
    """The way in which a call fails."""

    UNAVAILABLE = "fails in a way that may pass, and has done nothing"
    THROTTLED = "answers that there are too many requests, and has done nothing"
    DENIED = "fails in a way that will not pass, and has done nothing"
    LOST_ANSWER = "does its work, and then fails in a way that may pass"
    SHORT = "answers with the first half of the bytes"
    WRONG = "answers with one bit flipped"
    HANG = "does not return before heal()"
    LATE = "does its work only at heal(), when no caller waits for it any longer"
    CRASH = "the process dies before the call"
    CRASH_AFTER = "the process dies after the call, before its answer"


class SimulatedCrash(BaseException):
    """The process is dead. Only the test catches this, and continues with a new process."""


class FaultPlan:
    """Counts the steps of whatever consults it, and says which of them fail. Thread-safe."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self._planned: dict[int, StoreFault] = {}
        self._by: Callable[[str], StoreFault | None] = _no_fault
        self._dead = False
        self._lock = threading.Lock()
        self._healed = threading.Event()
        self._late = 0
        self._changed = threading.Condition(self._lock)

    def at(self, step: int, fault: StoreFault) -> None:
        """Let the `step`-th call from now on (1 is the next) fail."""
        with self._lock:
            self._planned[len(self.steps) + step] = fault

    def always(self, fault: StoreFault) -> None:
        """Let every call fail."""
        self.by(lambda _: fault)

    def by(self, choose: Callable[[str], StoreFault | None]) -> None:
        """Let each call do what `choose` says of it; it is called within a lock, with what the call is."""
        with self._lock:
            self._by = choose

    def heal(self) -> None:
        """Stop injecting faults. Calls that hang return, and a dead process is replaced by a new one."""
        with self._lock:
            self._planned.clear()
            self._by = _no_fault
            self._dead = False
            healed, self._healed = self._healed, threading.Event()
        healed.set()

    def step(self, what: str, work: Callable[[], _Result]) -> _Result:
        """Do one step, or what is planned instead; SHORT and WRONG are for `bend` to see to."""
        fault, healed = self._next(what)
        if fault in (StoreFault.CRASH, StoreFault.CRASH_AFTER):
            if fault is StoreFault.CRASH_AFTER:
                work()
            with self._lock:
                self._dead = True
            raise SimulatedCrash(what)
        if fault is StoreFault.HANG:
            healed.wait()
            raise RetriableRemoteStorageError(f"{what}: hung, and was let go")
        if fault is StoreFault.LATE:
            return self._work_late(work, healed)
        if fault is StoreFault.UNAVAILABLE:
            raise RetriableRemoteStorageError(f"{what}: the store answered 503 ServiceUnavailable")
        if fault is StoreFault.THROTTLED:
            raise RetriableRemoteStorageError(f"{what}: the store answered 429 SlowDown")
        if fault is StoreFault.DENIED:
            raise RemoteStorageError(f"{what}: access is denied")
        result = work()
        if fault is StoreFault.LOST_ANSWER:
            raise RetriableRemoteStorageError(f"{what}: the connection to the store broke")
        return bend(result, fault)

    def wait_for_steps(self, count: int) -> None:
        """Wait until so many more calls were made."""
        with self._lock:
            wanted = len(self.steps) + count
            self._changed.wait_for(lambda: len(self.steps) >= wanted)

    def wait_for_late(self) -> None:
        """Wait until everything has been done that heal() let go on."""
        with self._lock:
            self._changed.wait_for(lambda: self._late == 0)

    def _work_late(self, work: Callable[[], _Result], healed: threading.Event) -> _Result:
        with self._lock:
            self._late += 1
        try:
            healed.wait()
            return work()
        finally:
            with self._lock:
                self._late -= 1
                self._changed.notify_all()

    def _next(self, what: str) -> tuple[StoreFault | None, threading.Event]:
        with self._lock:
            if self._dead:
                raise SimulatedCrash(f"{what}: the process is dead")
            self.steps.append(what)
            self._changed.notify_all()
            chosen = self._by(what)
            return self._planned.pop(len(self.steps), chosen), self._healed


def _no_fault(_: str) -> StoreFault | None:
    return None


def bend(result: _Result, fault: StoreFault | None) -> _Result:
    """Return `result`, cut or with a bit flipped if it is bytes and the fault asks for that."""
    if fault not in (StoreFault.SHORT, StoreFault.WRONG) or not isinstance(result, (bytes, bytearray, memoryview)):
        return result
    data = bytearray(result)
    if fault is StoreFault.SHORT:
        del data[len(data) // 2 :]
    elif data:
        data[len(data) // 2] ^= 0x10
    return memoryview(data)  # type: ignore[return-value]  # any buffer stands for any other


class FaultyObjectStore(ForwardingObjectStore):
    """`inner`, with the faults of `faults`. Thread-safe."""

    def __init__(self, inner: ObjectStore, faults: FaultPlan) -> None:
        super().__init__(inner)
        self.faults = faults

    def around(self, operation: str, key: str, call: Callable[[], _Result]) -> _Result:
        return self.faults.step(f"{operation} {key}", call)

    def get_range(self, key: str, start: int, end: int) -> Buffer:
        return self.faults.step(f"get {key} [{start}, {end})", lambda: self.inner.get_range(key, start, end))

    def list(self, directory: str = "") -> Iterator[ObjectInfo]:
        return iter(self.faults.step(f"list {directory}", lambda: [*self.inner.list(directory)]))

    def delete_together(self, keys: Sequence[str]) -> None:
        self.delete(keys)
