"""The manual pages say what `--help` says, and man reads them without a warning."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from stratalog.cli.commands import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "man").glob("*.1"))


def test_the_manual_pages_and_the_reference_are_what_help_prints() -> None:
    command = [sys.executable, "-m", "tools.manual", "--check"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_every_command_has_a_page_that_a_wheel_installs() -> None:
    assert {page.name for page in PAGES} == {"stratalog.1", *(f"stratalog-{spec.name}.1" for spec in COMMANDS)}
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["shared-data"] == {"man": "share/man/man1"}


def test_man_reads_the_pages_without_a_warning() -> None:
    if shutil.which("groff") is None:
        pytest.skip("no groff on this machine: the manual pages are not checked")
    command = ["groff", "-man", "-Tutf8", "-ww", "-z", *map(str, PAGES)]
    read = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (read.returncode, read.stderr) == (0, "")


def test_an_index_of_manual_pages_finds_names_and_summaries() -> None:
    if shutil.which("lexgrog") is None:
        pytest.skip("no lexgrog on this machine: the names of the manual pages are not checked")
    found = subprocess.run(["lexgrog", *map(str, PAGES)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout.count(" - ")) == (0, len(PAGES)), found.stdout
