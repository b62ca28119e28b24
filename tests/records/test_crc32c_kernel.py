"""The native loops' CRC-32C equals the library's, with the processor's instruction and without."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from stratalog.records.native.crc32c import native_crc32c
from stratalog.util.checksum import crc32c

DATA = np.random.default_rng(1).integers(0, 256, 20_000, np.uint8)


@given(st.integers(0, 64), st.integers(0, 10_000))
@settings(deadline=None)
def test_any_stretch_has_the_librarys_crc(start: int, size: int) -> None:
    """Invariant: equal for every alignment and every size, around the lengths of the three streams too."""
    assert native_crc32c(DATA.ctypes.data + start, size) == crc32c(DATA[start : start + size].tobytes())


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 383, 384, 385, 3071, 3072, 3073, 3456, 6144, 9999])
def test_the_seams_between_streams_and_tail_hold(size: int) -> None:
    assert native_crc32c(DATA.ctypes.data, size) == crc32c(DATA[:size].tobytes())


def test_without_the_instruction_tables_give_the_same() -> None:
    code = (
        "import numpy as np;"
        "from stratalog.records.native import crc32c as k;"
        "from stratalog.util.checksum import crc32c;"
        "assert k._instruction() is None;"
        "data = np.arange(5000, dtype=np.int64).view(np.uint8);"
        "assert all(k.native_crc32c(data.ctypes.data + n, size) == crc32c(data[n : n + size].tobytes())"
        " for n in range(9) for size in (0, 3, 8, 100, 400, 4000));"
        "print('equal')"
    )
    environment = os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "equal", done.stderr
