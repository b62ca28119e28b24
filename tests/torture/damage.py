"""Bits that flip on a disk, and what `stratalog fsck --repair` does about it."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from stratalog.jobs import Severity
from stratalog.jobs.executor import Threads
from stratalog.jobs.fsck.findings import FsckKind
from stratalog.jobs.fsck.repair import plan
from stratalog.jobs.fsck.run import fsck
from stratalog.util.filesystem import REAL_FILESYSTEM

RECORDS: Final = frozenset({".log"})
#: What follows from the records.
DERIVED: Final = frozenset({".index", ".timeindex", ".snapshot"})


def flip_bits(dirs: Sequence[Path], suffixes: Collection[str], chance: random.Random) -> set[str]:
    """Flip a few bits in files with such names; the names of the partition directories."""
    files = [
        path
        for directory in dirs
        for path in sorted(directory.glob("*-*/*"))
        if path.suffix in suffixes and path.stat().st_size
    ]
    hit = set()
    for path in chance.sample(files, min(len(files), chance.choice([1, 1, 3]))):
        with path.open("r+b") as file:
            position = chance.randrange(path.stat().st_size)
            file.seek(position)
            byte = file.read(1)[0]
            file.seek(position)
            file.write(bytes([byte ^ (1 << chance.randrange(8))]))
        hit.add(path.parent.name)
    return hit


def repair(dirs: Sequence[Path]) -> list[str]:
    """Do what `fsck --repair` does; the errors that it found."""
    findings = fsck(dirs, REAL_FILESYSTEM, executor=Threads(1)).findings
    for action in plan(findings):
        action.carry_out(REAL_FILESYSTEM)
    # Leader epochs are cut with the log start offset, which a crash may take back to what its checkpoint says.
    return [
        f"{one.kind}: {one}"
        for one in findings
        if one.severity is Severity.ERROR and one.kind is not FsckKind.EPOCHS_CONTENT
    ]
