"""Children and grandchildren are found and ended, whether they want to or not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from stratalog.util.child_processes import descendants

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are read from /proc")

#: A parent whose child and grandchild ignore SIGTERM; it prints one line once the grandchild runs.
FAMILY = """
import os, signal, subprocess, sys
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]).wait()
else:
    from stratalog.util.child_processes import descendants, end_descendants
    input()
    print(len(descendants()), flush=True)
    end_descendants(0.2)
    print(len(descendants()), flush=True)
"""


def test_a_family_is_found_and_ended() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        assert len(descendants(parent.pid)) == 2
        parent.stdin.write("go\n")
        parent.stdin.flush()
        assert parent.stdout.read().split() == ["2", "0"]


def test_ended_children_are_not_waited_for() -> None:
    script = """
import subprocess, sys
from stratalog.util.child_processes import descendants, end_descendants
subprocess.run([sys.executable, "-c", ""], check=True)
assert descendants() == []
end_descendants(3600.0)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
