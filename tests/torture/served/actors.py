"""Something that one thread does again and again until it is stopped, whatever happens to the broker."""

from __future__ import annotations

import threading
import time
from typing import Any

from tests.torture.model import Violation

#: How long one step, or the last ones after a stop, may take: a restart of the broker and a rebalance lie within.
STEP_S = 120.0


class Actor:
    """Subclasses have `step`, called till `stop`, and `end`, called once after the last step, both in its thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.error: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def step(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        """Give back what it holds."""

    def start(self) -> None:
        self._thread.start()

    def pause(self, seconds: float) -> None:
        """Let others go on; a stop ends it early."""
        self._stopping.wait(seconds)

    def stop(self) -> None:
        """Return when its thread has ended. Raises what it failed with, or Violation when it does not end."""
        self._stopping.set()
        self._thread.join(STEP_S)
        if self._thread.is_alive():
            raise Violation(f"{self.name} does not end")
        self.look()

    def look(self) -> None:
        """Raise what it failed with, if anything."""
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.step()
            self.end()
        except BaseException as error:
            self.error = error


def client_config(bootstrap_servers: str, **more: Any) -> dict[str, Any]:
    """What all clients of librdkafka have in common: they are quick to find the broker again, and silent."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
        **more,
    }


class Deadline:
    """A bound in time for a loop of tries."""

    def __init__(self, seconds: float, what: str) -> None:
        self._until = time.monotonic() + seconds
        self._what = what

    def check(self, why: object) -> None:
        """Raise Violation when it is over."""
        if time.monotonic() > self._until:
            raise Violation(f"{self._what}: still {why}")
