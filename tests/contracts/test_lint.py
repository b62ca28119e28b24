"""Lint, formatting and types are part of the suite: what passes here passes in CI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["ruff", "check", "--no-cache", "."], id="ruff-check"),
        pytest.param(["ruff", "format", "--no-cache", "--check", "."], id="ruff-format"),
        pytest.param(["mypy"], id="mypy-strict"),
    ],
)
def test_has_nothing_to_say(command: list[str]) -> None:
    result = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
