"""Ctrl-C in a Spark job ends everything that it started, without a word."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stratalog.util.child_processes import descendants
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def _names(pids: list[int]) -> list[str]:
    """The names of those that still run."""
    found = []
    for pid in pids:
        try:
            name, _, fields = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        except OSError:  # it has ended
            continue
        if fields.split()[0] != "Z":
            found.append(name)
    return found


def test_an_interrupt_while_spark_starts_leaves_no_process_and_no_trace(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    job = subprocess.Popen(
        [sys.executable, "-m", "stratalog", "spark", "stats", "--data-dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: "java" in _names(descendants(job.pid)), "a JVM runs", seconds=60)
        family = descendants(job.pid)
        job.send_signal(signal.SIGINT)
        out, errors = job.communicate(timeout=60)
    finally:
        job.kill()
        job.wait()
    assert (job.returncode, out, errors) == (130, "", "")
    assert _names(family) == []
