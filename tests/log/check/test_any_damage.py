"""Whatever becomes of the files of a log directory: a check ends with findings, and repair leaves nothing to repair."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path

import pytest

from stratalog.errors import StratalogError
from stratalog.jobs.fsck.repair import plan
from stratalog.records.batch import iter_batches
from stratalog.util.filesystem import REAL_FILESYSTEM
from tests.log.check.conftest import report_of


def damage(data: Path, chosen: random.Random) -> None:
    """Cut, overwrite, empty, remove, zero, prolong, or take the content of another file."""
    files = sorted(path for path in data.rglob("*") if path.is_file())
    path = chosen.choice(files)
    content = path.read_bytes()
    at = chosen.randrange(len(content) + 1)
    kind = chosen.randrange(7)
    if kind == 0:
        path.write_bytes(content[:at])
    elif kind == 1:
        path.write_bytes(content[:at] + chosen.randbytes(chosen.randrange(1, 40)) + content[at + 20 :])
    elif kind == 2:
        path.write_bytes(b"")
    elif kind == 3:
        path.unlink()
    elif kind == 4:
        path.write_bytes(content[:at] + bytes(len(content) - at))
    elif kind == 5:
        path.write_bytes(content + chosen.randbytes(chosen.randrange(1, 200)))
    else:
        path.write_bytes(chosen.choice(files).read_bytes())


def sound_batches(data: Path) -> set[bytes]:
    """Every sound batch that a reader finds from the start of its log on."""
    found: set[bytes] = set()
    for path in data.rglob("*.log"):
        batches = iter_batches(path.read_bytes())
        with contextlib.suppress(StratalogError):  # what is no batch ends the log for a reader
            for batch in batches:
                if batch.is_crc_valid:
                    found.add(bytes(batch.as_memoryview()))
    return found


@pytest.mark.parametrize("seed", range(40))
def test_repair_keeps_every_sound_batch_and_leaves_nothing_to_repair(data: Path, seed: int) -> None:
    """For any damage: no exception; after repair no action is left, and no batch that was sound is gone."""
    chosen = random.Random(seed)
    shutil.rmtree(data / "orders-1")
    for _ in range(chosen.randrange(1, 5)):
        damage(data, chosen)
    sound = sound_batches(data)
    report = report_of(data)
    for action in plan(report.findings):
        action.carry_out(REAL_FILESYSTEM)
    assert sound_batches(data) >= sound, f"seed {seed}"
    left = [one for one in report_of(data).findings if one.action is not None]
    assert left == [], f"seed {seed}"
