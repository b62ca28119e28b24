"""What stories have in common: models, what happened since the last look, and damage between lives."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

from stratalog.errors import CorruptSnapshotError
from stratalog.log.format import producer_snapshot
from tests.torture.damage import DERIVED, RECORDS, flip_bits, repair
from tests.torture.journal import Models, Topic
from tests.torture.model import Found, Leniency, Violation


class Story:
    """Lives of two log directories in `root`, by `chance`."""

    def __init__(self, root: Path, chance: random.Random, topics: dict[str, Topic]) -> None:
        self.root = root
        self.chance = chance
        self.dirs = [root / "a", root / "b"]
        for path in self.dirs:
            path.mkdir(parents=True)
        self.models = Models(topics)
        self.counts: Counter[str] = self.models.counts
        self._was_damaged = False
        self._leniency: dict[tuple[str, int], Leniency] = {}

    def check(self, key: tuple[str, int], found: Found) -> None:
        """Raise Violation unless that is what a partition may hold now."""
        self.counts["looks"] += 1
        self.models.partitions[key].check(found, self._leniency.pop(key, Leniency()))

    def be_lenient(self, names: set[str] | None = None, **what: bool) -> None:
        """Something happened to these partition directories (None: to all)."""
        for topic, number in self.models.partitions:
            if names is None or f"{topic}-{number}" in names:
                before = self._leniency.get((topic, number), Leniency())
                self._leniency[topic, number] = replace(before, **what)

    def damage(self, *, was_clean: bool) -> None:
        """Flip bits and repair, or not."""
        chance = self.chance
        kind = chance.random()
        if kind < 0.06:
            self.counts["damages of records"] += 1
            self._was_damaged = True
            self.be_lenient(flip_bits(self.dirs, RECORDS, chance), records_were_damaged=True)
        elif kind < 0.12:
            self.counts["damages of derived files"] += 1
            self._was_damaged = True
            self.be_lenient(flip_bits(self.dirs, DERIVED, chance), producers_were_damaged=True)
        if chance.random() < (0.5 if kind < 0.12 else 0.1):
            self.counts["repairs"] += 1
            found = self.repair()
            if found and was_clean and kind >= 0.12 and not self._was_damaged:
                raise Violation(f"fsck after a clean stop: {found}")
        for directory in self.dirs:
            for path in directory.glob("*-stray"):
                shutil.rmtree(path)

    def expect_whole_snapshots(self) -> None:
        """A process that ends by itself, or is killed, leaves whole producer snapshots only; so does any clean stop."""
        if not self._was_damaged:
            for path in [path for directory in self.dirs for path in directory.glob("*/*.snapshot")]:
                try:
                    producer_snapshot.read(path)
                except CorruptSnapshotError as error:
                    raise Violation(str(error)) from error

    def repair(self) -> list[str]:
        """`fsck --repair`; what it found."""
        return repair(self.dirs)
