"""A program of one Java file beside the tests, with Kafka's clients, in a process of its own.

It prints words in lines, and ends with `CLOSED` when its input does.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.support.reference_jars import BROKER_JARS, classpath, java

_PATIENCE_S = 60.0


class JavaProgram:
    """`errors` is the file with what it prints on standard error."""

    def __init__(self, program: Path, arguments: Sequence[str], errors: Path) -> None:
        command = [java(), "-Xmx200m", "-XX:TieredStopAtLevel=1", "-cp", classpath(BROKER_JARS)]
        self.errors = errors
        with errors.open("w") as file:
            self.process = subprocess.Popen(
                [*command, str(program), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )
        #: The words of each line that it has printed.
        self.lines: list[list[str]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.split())

    def of(self, kind: str) -> list[list[str]]:
        """Return the lines that begin with this word."""
        return [row for row in list(self.lines) if row[:1] == [kind]]

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(_PATIENCE_S) == 0
        self._thread.join(_PATIENCE_S)
        assert ["CLOSED"] in self.lines

    def kill(self) -> None:
        """Kill it with signal 9, if it is still there, and close what leads to it."""
        with self.process:
            self.process.kill()
            self._thread.join(_PATIENCE_S)
