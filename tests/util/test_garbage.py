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

GROWTH = """
import gc
from stratalog.util import own_garbage

class Kept:
    alive = 0
    def __init__(self):
        Kept.alive += 1
        self.me = self
    def __del__(self):
        Kept.alive -= 1

with own_garbage():
    gc.collect()
    at_first = gc.get_freeze_count()
    assert at_first > 0
    kept = [Kept() for _ in range(at_first // 10)]
    gc.collect()
    assert gc.get_freeze_count() > at_first  # what is left is left out of the next one
    count = Kept.alive
    kept.clear()
    gc.collect()
    assert Kept.alive == count  # cycles among it stay
    kept = [[n] for n in range(4 * at_first)]
    gc.collect()
    gc.collect()
    gc.collect()
    assert Kept.alive == 0  # until there is four times as much
assert gc.get_freeze_count() == 0
assert not gc.callbacks
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


def test_what_a_collection_has_left_is_looked_at_again_once_it_has_grown() -> None:
    subprocess.run([sys.executable, "-c", GROWTH], check=True)


def test_the_collector_of_a_program_with_a_broker_inside_is_its_own() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
