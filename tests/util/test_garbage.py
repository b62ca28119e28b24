"""The collector leaves alone what a broker's process keeps until its end; other processes are not touched."""

from __future__ import annotations

import subprocess
import sys

BROKER = """
import gc
from stratalog.util import long_lived, own_garbage

with own_garbage():
    with long_lived():
        assert not gc.isenabled()
        with long_lived():
            kept = [[n] for n in range(1000)]
        assert not gc.isenabled()
    assert gc.isenabled() and gc.get_freeze_count() > 1000
    before = gc.get_freeze_count()
    try:
        with long_lived():
            raise OSError("a start that fails")
    except OSError:
        pass
    assert gc.isenabled() and gc.get_freeze_count() >= before
assert gc.get_freeze_count() == 0
with long_lived():
    assert gc.isenabled()
"""

PROGRAM = """
import gc
from stratalog.util import long_lived

with long_lived():
    assert gc.isenabled()
assert gc.get_freeze_count() == 0
"""


def test_what_is_made_within_is_never_looked_at_again() -> None:
    subprocess.run([sys.executable, "-c", BROKER], check=True)


def test_the_collector_of_a_program_with_a_broker_inside_is_its_own() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
