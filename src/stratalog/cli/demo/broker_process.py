"""The demo's broker: `stratalog serve` in a separate process, as a user would run it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

from stratalog.errors import UsageError

_READY = re.compile(r"^ready broker=(\S+)")
_START_SECONDS_MAX = 60
_STOP_SECONDS_MAX = 30

#: Short intervals, so that housekeeping is visible within a minute.
_SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}


class BrokerProcess:
    """A running broker. `bootstrap` is its address, `log_path` holds what it printed."""

    def __init__(self, process: subprocess.Popen[str], bootstrap: str, log_path: Path) -> None:
        self.bootstrap = bootstrap
        self.log_path = log_path
        self.pid = process.pid
        self._process = process

    @classmethod
    def start(cls, data_dir: Path, log_path: Path) -> BrokerProcess:
        """Start on a free port and wait for the line `ready`. Raises UsageError with the reason if it does not come."""
        command = [
            sys.executable,
            "-m",
            "stratalog",
            "serve",
            "--data-dir",
            str(data_dir),
            "--listen",
            "127.0.0.1:0",
        ]
        for key, value in _SETTINGS.items():
            command += ["--set", f"{key}={value}"]
        with log_path.open("w") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
        # A broker that hangs before its first line would block the read below indefinitely.
        watchdog = threading.Timer(_START_SECONDS_MAX, process.kill)
        watchdog.start()
        try:
            line = process.stdout.readline() if process.stdout else ""
        finally:
            watchdog.cancel()
        match = _READY.match(line)
        if match is None:
            process.kill()
            process.wait()
            tail = log_path.read_text(errors="replace").strip().splitlines()
            raise UsageError(f"the broker did not start: {tail[-1] if tail else 'no reason given'} (see {log_path})")
        return cls(process, match[1], log_path)

    def stop(self) -> int:
        """Request a clean shutdown, wait, and return the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            if self._process.stdout:
                self._process.stdout.close()
