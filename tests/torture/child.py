"""A life in a process of its own, which may be killed at any time. It tells what it does through a pipe.

Importing this loads all that a life needs, so that one costs no more than a fork.
"""

from __future__ import annotations

import logging
import os
import random
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from stratalog.records.native import warm
from stratalog.util.clock import SYSTEM_CLOCK
from stratalog.util.filesystem import REAL_FILESYSTEM
from tests.torture.damage import repair
from tests.torture.journal import Topic
from tests.torture.model import ProducerModel
from tests.torture.world import Work, World, look_at

warm("clean")

PROPERTIES = {
    "log.initial.task.delay.ms": "5",
    "log.retention.check.interval.ms": "60",
    "log.flush.offset.checkpoint.interval.ms": "40",
    "log.cleaner.backoff.ms": "15",
    "log.cleaner.dedupe.buffer.size": "1048576",
    "log.cleaner.io.buffer.size": "40000",
    "transaction.partition.verification.enable": "false",
    "num.recovery.threads.per.data.dir": "2",
}


@dataclass(frozen=True)
class Plan:
    """What a life is given."""

    dirs: list[Path]
    topics: dict[str, Topic]
    seed: int
    #: Then comes a clean stop; None: work until it is killed.
    steps: int | None


class Knowledge(NamedTuple):
    """What the clients know, when all has been looked at."""

    producers: dict[tuple[str, int], dict[int, ProducerModel]]
    next_number: int
    next_producer: int


def live(plan: Plan, reported: Connection) -> None:
    """Start, look, work, and stop cleanly if no one kills it before."""
    logging.disable(logging.CRITICAL)
    try:
        _live(plan, reported)
    except BaseException:
        reported.send(("error", traceback.format_exc()))
        os._exit(3)
    reported.close()
    os._exit(0)  # nothing else of the process that this one was forked from is to end


def _live(plan: Plan, reported: Connection) -> None:
    chance = random.Random(plan.seed)
    world = World(
        plan.dirs, plan.topics, fs=REAL_FILESYSTEM, clock=SYSTEM_CLOCK, properties=PROPERTIES, tell=reported.send
    )
    manager = world.start()
    seen = 0
    for partition in world.partitions():
        if partition.failure is None:
            reported.send(("found", (partition.topic, partition.partition), look_at(partition, chance)))
            seen += 1
    reported.send(("ready", seen, _offline(world)))
    knowledge: Knowledge = reported.recv()
    work = Work(
        world,
        chance,
        knowledge.producers,
        next_number=knowledge.next_number,
        next_producer=knowledge.next_producer,
        worker=None,
        sizes=[0, 100, 400, 2_000, 5_000],
    )
    if not manager.dirs.offline:
        work.retry_all()
    steps = 0
    while (plan.steps is None or steps < plan.steps) and not manager.dirs.offline and world.partitions():
        work.step()
        steps += 1
    manager.close()
    reported.send(("closed", _offline(world)))


def _offline(world: World) -> dict[str, str]:
    assert world.manager is not None
    return {path.name: reason for path, reason in world.manager.dirs.offline.items()}


def repair_and_tell(dirs: list[Path], reported: Connection) -> None:
    """`fsck --repair`, given what it found; nothing on a disk that is full."""
    logging.disable(logging.CRITICAL)
    try:
        reported.send(("repaired", repair(dirs)))
    except OSError as error:
        reported.send(("repaired", [] if error.errno == 28 else [traceback.format_exc()]))
    except BaseException:
        reported.send(("error", traceback.format_exc()))
    reported.close()
    os._exit(0)
