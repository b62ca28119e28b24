"""A story in the test's own process: the lives of one directory, killed at any file operation, on a file system that
tears.

Some lives meet a full disk, some end by a power failure, some directories are damaged and repaired in between.
"""

from __future__ import annotations

import random
from collections import Counter
from copy import deepcopy
from pathlib import Path

from stratalog.testing.clock import ManualClock
from stratalog.testing.lossy_filesystem import Killed, LossyFileSystem
from tests.torture.journal import random_topics
from tests.torture.model import Violation
from tests.torture.story import Story
from tests.torture.world import Work, World, look_at

_NEVER = str(2**40)
PROPERTIES = {
    # Nothing happens by itself: what happens is drawn by chance, on one thread.
    "log.cleaner.enable": "false",
    "log.initial.task.delay.ms": _NEVER,
    "producer.id.expiration.check.interval.ms": str(2**31 - 1),
    "transaction.partition.verification.enable": "false",
    "num.recovery.threads.per.data.dir": "1",
}


class LossyStory(Story):
    """Lives of two log directories in `root`, by `seed`."""

    def __init__(self, root: Path, seed: int, *, loses_power: bool) -> None:
        chance = random.Random(seed)
        super().__init__(root, chance, random_topics(chance, segment_bytes=8_000, retention_segments=4))
        self.loses_power = loses_power

    def live(self) -> None:
        """One life and what comes after it. Raises Violation, and whatever should not have come out of the work."""
        chance = self.chance
        self.counts["lives"] += 1
        fs = LossyFileSystem(self.root, chance.randrange(2**32))
        world = World(
            self.dirs,
            deepcopy(self.models.topics),
            fs=fs,
            clock=ManualClock(),
            properties=PROPERTIES,
            tell=self.models.take,
            in_order=True,
        )
        kill_early = chance.random() < 0.25
        if kill_early:
            fs.kill_at = chance.randint(0, 150)
        elif chance.random() < 0.1:
            fs.bytes_left = chance.randint(0, 60_000)
        was_clean = False
        try:
            self._look(world)
            if not kill_early and chance.random() < 0.6:
                fs.kill_at = chance.randint(0, 300)
            elif chance.random() < 0.4:
                fs.bytes_left = chance.randint(0, 20_000)
            self._work(world)
            if chance.random() < 0.6:
                assert world.manager is not None
                world.manager.close()
                was_clean = not world.manager.dirs.offline
        except Killed:
            self.counts["kills"] += 1
            was_clean = False
        if world.manager is not None and world.manager.dirs.offline:
            self.counts["full disks"] += 1
            if fs.bytes_left is None:
                raise Violation(f"offline without a full disk: {world.manager.dirs.offline}")
        world.drop()
        power_loss = self.loses_power and not was_clean and chance.random() < 0.4
        fs.crash(power_loss=power_loss)
        if power_loss:
            self.counts["power failures"] += 1
            self.be_lenient(power_was_lost=True)
        if was_clean or not self.loses_power:
            self.expect_whole_snapshots()
        self.damage(was_clean=was_clean)

    def _look(self, world: World) -> None:
        manager = world.start()
        for partition in world.partitions():
            if partition.failure is not None:
                continue
            self.check((partition.topic, partition.partition), look_at(partition, self.chance))
        if not manager.dirs.offline and len(world.partitions()) < len(self.models.partitions):
            raise Violation("a partition is offline, its directory is not")

    def _work(self, world: World) -> None:
        producers = {key: deepcopy(model.producers) for key, model in self.models.partitions.items()}
        work = Work(
            world,
            self.chance,
            producers,
            next_number=self.models.next_number,
            next_producer=self.models.next_producer,
            worker=world.cleaner_worker(),
            sizes=[0, 100, 400, 400, 1_200],
        )
        work.retry_all()
        for _ in range(self.chance.choice([10, 60, 120])):
            if not world.partitions() or (world.manager is not None and world.manager.dirs.offline):
                return
            work.step()


def live_lossy(root: Path, seed: int, lives: int, *, loses_power: bool = False) -> Counter[str]:
    """Run a story; what it counted. A violation names the seed and the life."""
    story = LossyStory(root, seed, loses_power=loses_power)
    for life in range(lives):
        try:
            story.live()
        except BaseException as error:
            error.add_note(f"seed {seed}, life {life} of a story on a lossy file system in {root}")
            raise
    return story.counts
