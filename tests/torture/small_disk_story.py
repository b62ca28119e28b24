"""A story on a real file system of a few MB: each life is a process, killed with `kill -9` at any time.

The disk fills up; a ballast that is taken away then makes room for the next life, as people do.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from tests.torture.child import Knowledge, Plan, live, repair_and_tell
from tests.torture.journal import Event, random_topics
from tests.torture.model import Violation
from tests.torture.story import Story

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.torture.child"])
#: A disk with less room than this is full.
_FULL_BYTES: Final = 150_000
#: A life that tells nothing for so long hangs.
_SILENCE_SECONDS: Final = 120


class SmallDiskStory(Story):
    """Lives of two log directories on a small disk that is mounted at `root`."""

    def __init__(self, root: Path, seed: int) -> None:
        chance = random.Random(seed)
        super().__init__(root, chance, random_topics(chance, segment_bytes=40_000, retention_segments=8))
        self._ballast = root / "ballast"
        self._fill()

    def live(self) -> None:
        """One life and what comes after it."""
        self.counts["lives"] += 1
        chance = self.chance
        steps = chance.choice([None, None, None, 50, 300])
        plan = Plan(self.dirs, self.models.topics, chance.randrange(2**32), steps)
        kill_early = chance.random() < 0.2
        kill_after = chance.uniform(0, 0.15) if kill_early else chance.uniform(0, 0.7)
        was_clean = False
        with _process(live, plan) as (process, reported):
            kill_at = time.monotonic() + kill_after if kill_early else None
            killed = False
            while True:
                wait = _SILENCE_SECONDS if kill_at is None or killed else kill_at - time.monotonic()
                if kill_at is not None and not killed and (wait <= 0 or not reported.poll(wait)):
                    os.kill(process.pid, signal.SIGKILL)
                    killed = True
                    continue
                if kill_at is None and not reported.poll(wait):
                    raise Violation(f"a life tells nothing for {_SILENCE_SECONDS} seconds")
                try:
                    message = reported.recv()
                except (EOFError, OSError):
                    break
                was_clean = self._take(message) or was_clean
                if message[0] == "ready":
                    with suppress(OSError):  # it was killed
                        reported.send(self._knowledge())
                    if kill_at is None and plan.steps is None:
                        kill_at = time.monotonic() + kill_after
            process.join()
        self.counts["kills"] += killed
        if process.exitcode not in ((0, -signal.SIGKILL) if killed else (0,)):
            raise Violation(f"the process ended with {process.exitcode}")
        self._make_room()
        self.damage(was_clean=was_clean)

    def _knowledge(self) -> Knowledge:
        models = self.models
        producers = {key: model.producers for key, model in models.partitions.items()}
        return Knowledge(producers, models.next_number, models.next_producer)

    def _take(self, message: Any) -> bool:
        """Take what a life tells; whether it was a clean end."""
        if isinstance(message, Event):
            self.models.take(message)
            return False
        match message:
            case ("found", key, found):
                self.check(key, found)
            case ("ready", seen, offline):
                self._check_offline(offline)
                if not offline and seen < len(self.models.partitions):
                    raise Violation("a partition is offline, its directory is not")
            case ("closed", offline):
                self._check_offline(offline)
                if offline:
                    self.counts["full disks"] += 1
                return not offline
            case ("error", text):
                raise Violation(text)
        return False

    def _check_offline(self, offline: dict[str, str]) -> None:
        others = {name: reason for name, reason in offline.items() if "No space left" not in reason}
        if others:
            raise Violation(f"offline without a full disk: {others}")

    def repair(self) -> list[str]:
        with _process(repair_and_tell, self.dirs) as (process, reported):
            try:
                what, found = reported.recv()
            except EOFError:
                process.join()
                raise Violation(f"fsck ended with {process.exitcode}") from None
            process.join()
        if what == "error":
            raise Violation(f"fsck: {found}")
        return list(found)

    # --- the disk -------------------------------------------------------------------------------------------------

    def _free(self) -> int:
        state = os.statvfs(self.root)
        return state.f_bavail * state.f_frsize

    def _fill(self) -> None:
        room = self.chance.choice([200_000, 600_000, 1_500_000])
        self._ballast.write_bytes(bytes(max(self._free() - room, 0)))

    def _make_room(self) -> None:
        """What people do about a full disk: remove what is kept for them to look at, and what they can spare."""
        if self._free() < _FULL_BYTES:
            for directory in self.dirs:
                for path in directory.glob("*/*.cut"):
                    path.unlink()
            self._ballast.unlink(missing_ok=True)
        elif not self._ballast.exists() or self.chance.random() < 0.2:
            self._ballast.unlink(missing_ok=True)
            self._fill()

    @property
    def is_full_for_good(self) -> bool:
        """Whether nothing is left that could make room."""
        return self._free() < _FULL_BYTES and not self._ballast.exists()


@contextmanager
def _process(target: Callable[..., None], what: object) -> Iterator[tuple[Any, Connection]]:
    """A process that runs `target(what, pipe)`, and the end of the pipe to listen to."""
    reported, tells = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=target, args=(what, tells), daemon=True)
    process.start()
    tells.close()
    try:
        yield process, reported
    finally:
        if process.exitcode is None:
            process.kill()
        process.join()
        reported.close()


def live_on_a_small_disk(root: Path, seed: int, lives: int) -> Counter[str]:
    """Run a story, or less of it if the disk is full for good; what it counted."""
    story = SmallDiskStory(root, seed)
    for life in range(lives):
        try:
            story.live()
        except BaseException as error:
            error.add_note(f"seed {seed}, life {life} of a story on a small disk")
            raise
        if story.is_full_for_good:
            story.counts["disks full for good"] += 1
            break
    return story.counts
