"""Replication by seed: what was seen or confirmed is in every later leader, whatever fails. See `replica_world`."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from stratalog.engine.replication import FollowerProgress, Reign
from tests.sim import replica_world
from tests.sim.replica_world import FaultFound, World

STEPS = 400
#: Long enough for several reigns of each broker, and for most brokers to be lost and to come back.
MANY_STEPS = 3_000


def run(seeds: Iterable[int], steps: int = STEPS) -> World:
    world = World(0)
    for seed in seeds:
        world = World(seed)
        try:
            world.run(steps)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    return world


def test_what_was_confirmed_is_in_every_later_leader() -> None:
    run(range(1_000))


@pytest.mark.soak
def test_what_was_confirmed_is_in_every_later_leader_of_10_000_runs() -> None:
    run(range(10_000))
    run(range(10_000, 20_000), MANY_STEPS)


def test_what_was_confirmed_outlives_directories_that_are_lost_before_a_stop() -> None:
    """Seeds that found a model whose brokers stopped cleanly without what a lost directory had held."""
    run((10015, 10468, 10941, 12015, 13037, 14627, 14715, 19545), MANY_STEPS)


def test_a_change_that_its_leader_has_undone_is_not_made_later() -> None:
    """A seed in which the controller refuses a fenced replica, and gets a copy of the request when it is unfenced."""
    run((21850,))


def test_the_runs_do_something() -> None:
    worlds = []
    for seed in range(40):
        worlds.append(World(seed))
        worlds[-1].run(STEPS)
    assert sum(world.confirmed for world in worlds) > 40
    assert sum(world.elections for world in worlds) > 80


def _is_broken(seeds: int = 800) -> None:
    with pytest.raises(FaultFound):
        run(range(seeds))


def test_a_shrink_that_counts_before_the_controller_agreed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def pending_or_isr(reign: Reign) -> frozenset[int]:
        return reign.isr if reign.pending is None else reign.pending.brokers

    monkeypatch.setattr(Reign, "maximal_isr", property(pending_or_isr))
    _is_broken()


def test_an_expansion_that_does_not_count_until_it_is_confirmed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reign, "maximal_isr", property(lambda reign: reign.isr))
    monkeypatch.setattr(FollowerProgress, "is_caught_up", lambda *_: False)
    _is_broken()


def test_a_high_watermark_of_the_leader_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reign, "high_watermark", lambda _reign, end, **_: end)
    _is_broken()


def test_a_high_watermark_that_moves_under_min_isr_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Reign.high_watermark

    def without_min_isr(reign: Reign, end: int, **facts: object) -> int | None:
        return original(reign, end, **{**facts, "min_isr": 0})  # type: ignore[arg-type]

    monkeypatch.setattr(Reign, "high_watermark", without_min_isr)
    _is_broken()


def test_a_follower_that_does_not_truncate_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_world.SimLog, "end_of_epoch", lambda _log, epoch, end: (epoch, end))
    _is_broken()


def test_a_follower_that_joins_behind_the_high_watermark_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Reign.propose_expansion

    def early(reign: Reign, broker: int, **facts: object) -> object:
        reign.epoch_start = 0
        return original(reign, broker, **{**facts, "high_watermark": 0})  # type: ignore[arg-type]

    monkeypatch.setattr(Reign, "propose_expansion", early)
    _is_broken()
