"""Our broker as a process of its own, which a test may kill and start again on the same directory and port."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from tests.support.reference_kafka import free_port


class KillableBroker:
    """`stratalog serve` on `data_dir`, serving when the constructor returns; `settings` are its `--set`s.

    `open_files` is the soft and the hard limit of its open files.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int | None = None,
        settings: dict[str, str] | None = None,
        *,
        open_files: tuple[int, int] | None = None,
    ) -> None:
        self.open_files = open_files
        self.data_dir = data_dir
        self.address = f"127.0.0.1:{port or free_port()}"
        self.settings = {"auto.create.topics.enable": "false"} | (settings or {})
        self.start()

    def __enter__(self) -> KillableBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.end(signal.SIGKILL)

    def start(self) -> None:
        """Launch it, and wait until it serves."""
        self.launch()
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("ready ")

    def launch(self) -> None:
        """Begin a start, and do not wait."""
        command = [sys.executable, "-m", "stratalog", "serve", "--data-dir", str(self.data_dir)]
        command += ["--listen", self.address]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        if self.open_files is not None:
            soft, hard = self.open_files
            command = ["sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"', "sh", *command]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        self.process.communicate(timeout=60)
        return int(self.process.returncode)
