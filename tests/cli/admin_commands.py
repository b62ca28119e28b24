"""Running an administrative command line in this process, against a broker."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from stratalog.cli.main import run


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        (line,) = self.out.splitlines()
        return json.loads(line)


class CommandLine:
    """`stratalog ARGS --bootstrap-server` of one broker."""

    def __init__(self, bootstrap_servers: str, capture: pytest.CaptureFixture[str]) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._capture = capture

    def __call__(self, *args: str) -> Ran:
        self._capture.readouterr()
        code = run([*args, "--bootstrap-server", self._bootstrap_servers])
        said = self._capture.readouterr()
        return Ran(code, said.out, said.err)

    def good(self, *args: str) -> Ran:
        """A command that has to succeed without a word on stderr."""
        ran = self(*args)
        assert (ran.code, ran.err) == (0, ""), ran
        return ran

    def refused(self, *args: str, code: int = 1) -> str:
        """A command that has to fail with this exit code and one line on stderr; the line."""
        ran = self(*args)
        assert (ran.code, ran.out) == (code, ""), ran
        (line,) = ran.err.splitlines()
        assert line.startswith("stratalog: ")
        return line.removeprefix("stratalog: ")
