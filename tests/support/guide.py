"""Pages of the documentation whose commands are carried out by tests, as they are written."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from stratalog.cli.main import run

DOCS = Path(__file__).parents[2] / "docs"


class Guide:
    """A page. Its commands are done once each, in the order of the test; `rest` is what was not done."""

    def __init__(self, page: str, places: Mapping[str, str]) -> None:
        """`places`: what stands for paths, addresses and URLs of the page here."""
        text = (DOCS / page).read_text().replace("\\\n", " ")
        text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        blocks = re.findall(r"^ {4,}(\S.*)$", text, re.MULTILINE)
        self.rest = [" ".join(line.split(" #")[0].split()) for line in blocks]
        self._places = places

    def here(self, command: str) -> str:
        for there, here in sorted(self._places.items(), key=lambda pair: -len(pair[0])):
            command = command.replace(there, here)
        return command

    def take(self, beginning: str) -> str:
        """The next command that begins so."""
        command = next(each for each in self.rest if each.startswith(beginning))
        self.rest.remove(command)
        return self.here(command)

    def do(self, beginning: str, expected: int = 0) -> None:
        """Carry out the next command that begins so: the program in this process, other programs by a shell."""
        command = self.take(beginning)
        if command.startswith("stratalog ") and not re.search(r"[|<>]", command):
            assert run(shlex.split(command)[1:]) == expected, command
        else:
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            done = subprocess.run(["bash", "-ec", command], env=os.environ | {"PATH": path}, check=False)
            assert done.returncode == expected, command
