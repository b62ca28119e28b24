"""The state machines of replication, without logs: in-sync replicas, roles, and where a follower cuts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sim.model_controller import ModelPartition

from stratalog.engine.replication import (
    AlterOutcome,
    IsrState,
    Reign,
    ReplicaRole,
    Role,
    cut_at_divergence,
    move_into_range,
)
from stratalog.errors import NotEnoughReplicasAfterAppendError, NotEnoughReplicasError, NotLeaderOrFollowerError

LAG_MS = 1_000


def partition(isr: tuple[int, ...] = (1, 2, 3), **fields: Any) -> ModelPartition:
    return ModelPartition((1, 2, 3), isr, **{"leader": 1, "leader_epoch": 5, "partition_epoch": 7, **fields})


def reign(isr: tuple[int, ...] = (1, 2, 3), epoch_start: int = 0) -> Reign:
    return Reign(1, partition(isr), epoch_start=epoch_start, now_ms=0)


def registered(broker: int) -> int | None:
    return 10 + broker


def fetch(leader: Reign, broker: int, offset: int, *, end: int, now_ms: int = 0, epoch: int | None = None) -> None:
    leader.note_fetch(
        broker,
        broker_epoch=10 + broker if epoch is None else epoch,
        offset=offset,
        log_start_offset=0,
        leader_end=end,
        now_ms=now_ms,
        registered_epoch=registered(broker),
    )


def watermark(leader: Reign, end: int, *, min_isr: int = 1, now_ms: int = 0) -> int | None:
    return leader.high_watermark(end, min_isr=min_isr, now_ms=now_ms, lag_max_ms=LAG_MS, isr_epoch=registered)


def test_the_high_watermark_is_the_lowest_end_in_sync() -> None:
    leader = reign()
    fetch(leader, 2, 10, end=20)
    fetch(leader, 3, 7, end=20)
    assert watermark(leader, 20) == 7


def test_the_high_watermark_stands_while_too_few_are_in_sync() -> None:
    leader = reign((1,))
    assert watermark(leader, 20, min_isr=2) is None
    assert watermark(leader, 20, min_isr=1, now_ms=5_000) == 20


def test_min_isr_is_never_more_than_the_replicas() -> None:
    assert reign().min_isr(5) == 3


def test_a_follower_about_to_join_holds_the_high_watermark() -> None:
    leader = reign((1, 2))
    fetch(leader, 2, 20, end=20)
    fetch(leader, 3, 20, end=20)
    fetch(leader, 2, 25, end=25)
    assert watermark(leader, 25) == 20


def test_a_pending_expansion_holds_the_high_watermark_and_the_committed_isr_stays() -> None:
    leader = reign((1, 2))
    fetch(leader, 3, 20, end=20, now_ms=-9_000)
    change = leader.propose_expansion(3, high_watermark=20, broker_epoch=11, isr_epoch=registered)
    assert change is not None
    assert change.isr == ((1, 11), (2, -1), (3, 13))
    assert leader.state is IsrState.PENDING_EXPAND
    assert leader.isr == {1, 2}
    assert leader.maximal_isr == {1, 2, 3}
    assert leader.propose_shrink(20, now_ms=9_000, lag_max_ms=LAG_MS, broker_epoch=11) is None


def test_a_pending_shrink_changes_nothing_until_the_controller_answers() -> None:
    leader = reign()
    fetch(leader, 2, 30, end=30, now_ms=5_000)
    fetch(leader, 3, 7, end=30, now_ms=5_000)
    change = leader.propose_shrink(30, now_ms=5_000, lag_max_ms=LAG_MS, broker_epoch=11)
    assert change is not None
    assert change.brokers == {1, 2}
    assert watermark(leader, 30, now_ms=5_000) == 7
    assert leader.accept(change, (1, 2), leader_epoch=5, partition_epoch=8, leader_recovery_state=0)
    assert leader.state is IsrState.COMMITTED
    assert watermark(leader, 30, now_ms=5_000) == 30


def test_answers_are_newer_than_metadata() -> None:
    leader = reign()
    change = leader.propose_shrink(30, now_ms=5_000, lag_max_ms=LAG_MS, broker_epoch=11)
    assert change is not None
    assert leader.accept(change, (1,), leader_epoch=5, partition_epoch=9, leader_recovery_state=0)
    assert not leader.update(partition((1, 2, 3), partition_epoch=8))
    assert not leader.update(partition((1,), partition_epoch=9))
    assert leader.isr == {1}


def test_an_answer_of_an_older_change_ends_no_later_one() -> None:
    leader = reign()
    first = leader.propose_shrink(30, now_ms=5_000, lag_max_ms=LAG_MS, broker_epoch=11)
    assert first is not None
    assert leader.update(partition((1, 2, 3), partition_epoch=8))
    second = leader.propose_shrink(30, now_ms=5_000, lag_max_ms=LAG_MS, broker_epoch=11)
    assert not leader.accept(first, (1,), leader_epoch=5, partition_epoch=8, leader_recovery_state=0)
    assert leader.pending is second


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (107, AlterOutcome.UNDONE),
        (55, AlterOutcome.UNDONE),
        (95, AlterOutcome.AWAITS_METADATA),
        (74, AlterOutcome.AWAITS_METADATA),
        (108, AlterOutcome.AWAITS_METADATA),
        (77, AlterOutcome.RETRY),
        (41, AlterOutcome.RETRY),
    ],
)
def test_a_refused_change_is_undone_or_counts_until_metadata_comes(code: int, outcome: AlterOutcome) -> None:
    leader = reign()
    change = leader.propose_shrink(30, now_ms=5_000, lag_max_ms=LAG_MS, broker_epoch=11)
    assert change is not None
    assert leader.refuse(change, code) is outcome
    assert (leader.pending is None) is (outcome is AlterOutcome.UNDONE)


def test_who_joins_has_the_high_watermark_and_the_start_of_the_epoch() -> None:
    leader = reign((1, 2), epoch_start=15)
    fetch(leader, 3, 12, end=20)
    assert leader.propose_expansion(3, high_watermark=10, broker_epoch=11, isr_epoch=registered) is None
    fetch(leader, 3, 15, end=20)
    assert leader.propose_expansion(3, high_watermark=16, broker_epoch=11, isr_epoch=registered) is None
    assert leader.propose_expansion(3, high_watermark=15, broker_epoch=11, isr_epoch=registered) is not None


def test_only_the_registered_process_counts() -> None:
    leader = reign((1, 2))
    with pytest.raises(NotLeaderOrFollowerError):
        fetch(leader, 3, 20, end=20, epoch=12)
    fetch(leader, 3, 20, end=20, epoch=14)  # newer than the metadata here says
    assert leader.propose_expansion(3, high_watermark=20, broker_epoch=11, isr_epoch=registered) is None
    with pytest.raises(NotLeaderOrFollowerError):
        fetch(leader, 4, 20, end=20)


def test_a_broker_that_is_fenced_does_not_join() -> None:
    leader = reign((1, 2))
    fetch(leader, 3, 20, end=20)
    assert leader.propose_expansion(3, high_watermark=20, broker_epoch=11, isr_epoch=lambda _: None) is None


def test_a_follower_that_keeps_up_without_reaching_the_end_stays_in() -> None:
    leader = reign()
    for now_ms in range(0, 10_000, 500):
        for broker in (2, 3):
            fetch(leader, broker, now_ms, end=now_ms + 500, now_ms=now_ms)
    assert not leader.lagging(10_000, now_ms=10_000, lag_max_ms=LAG_MS)
    assert leader.lagging(10_000, now_ms=11_000, lag_max_ms=LAG_MS) == {2, 3}


def test_acks_all_needs_enough_replicas_before_and_after() -> None:
    leader = reign((1,))
    with pytest.raises(NotEnoughReplicasError):
        leader.check_min_isr(2)
    assert not leader.is_confirmed(9, 9, 2)
    with pytest.raises(NotEnoughReplicasAfterAppendError):
        leader.is_confirmed(9, 10, 2)
    assert reign().is_confirmed(9, 10, 2)


def test_deletions_wait_for_the_replicas_that_are_alive() -> None:
    leader = reign()
    leader.followers[2].log_start_offset = 5
    assert leader.low_watermark(10, lambda broker: broker == 2) == 5
    assert leader.low_watermark(10, lambda _: True) == -1


def test_older_metadata_is_dropped() -> None:
    role = ReplicaRole().after(partition(), 2)
    assert role == ReplicaRole(Role.FOLLOWER, 1, 5, 7)
    assert role.after(partition(partition_epoch=7), 2) is None
    assert role.after(partition(leader_epoch=4, partition_epoch=8), 2) is None
    leader = role.after(partition(leader=2, leader_epoch=6, partition_epoch=8), 2)
    assert leader is not None
    assert leader.role is Role.LEADER
    nobody = leader.after(partition(leader=-1, leader_epoch=7, partition_epoch=9), 2)
    assert nobody is not None
    assert nobody.role is Role.LEADERLESS
    assert nobody.ended(Role.OFFLINE).after(partition(leader_epoch=9, partition_epoch=12), 2) is None


def end_of_epoch(*entries: tuple[int, int]) -> object:
    def find(epoch: int, log_end: int) -> tuple[int, int]:
        known = [entry for entry in entries if entry[0] <= epoch]
        later = [entry for entry in entries if entry[0] > epoch]
        if not known:
            return (-1, -1) if not later else (epoch, later[0][1])
        return known[-1][0], later[0][1] if later else log_end

    return find


@pytest.mark.parametrize(
    ("leader", "epochs", "cut"),
    [
        ((2, 15), ((1, 0), (2, 10)), 15),  # same epoch, the leader's ends earlier
        ((2, 30), ((1, 0), (2, 10)), 20),  # never behind the own end
        ((1, 8), ((1, 0), (2, 10)), 8),
        ((3, 18), ((1, 0), (2, 10), (4, 12)), 12),  # an epoch that is not here: the end of the one before it
        ((-1, -1), ((1, 0),), 4),  # the leader does not know: the high watermark
        ((-1, 11), ((1, 0),), 11),
        ((2, 15), (), 15),
    ],
)
def test_a_follower_cuts_where_epochs_part(
    leader: tuple[int, int], epochs: tuple[tuple[int, int], ...], cut: int
) -> None:
    found = cut_at_divergence(
        *leader,
        log_end=20,
        high_watermark=4,
        end_of_epoch=end_of_epoch(*epochs),  # type: ignore[arg-type]
    )
    assert found == cut


def test_a_follower_out_of_range_goes_back_or_starts_over() -> None:
    assert move_into_range(log_end=20, leader_start=0, leader_end=15).offset == 15
    behind = move_into_range(log_end=20, leader_start=40, leader_end=60)
    assert (behind.offset, behind.starts_over) == (40, True)
    within = move_into_range(log_end=20, leader_start=5, leader_end=60)
    assert (within.offset, within.starts_over) == (20, False)
