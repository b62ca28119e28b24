"""Records in flight of a share group: who gets which, and what becomes of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from stratalog.broker.share import (
    AckBatch,
    AcquireLimits,
    BatchOffsets,
    DeliveryLimits,
    PartitionDelivery,
    RecordRun,
    RecordState,
)
from stratalog.errors import InvalidRecordStateError, InvalidRequestError, KafkaError

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState
LIMITS = DeliveryLimits(locks=100, deliveries=2, lock_ms=1_000)
MANY = AcquireLimits(records=500, batch=500)


def _acquired(
    delivery: PartitionDelivery, member: str, *batches: tuple[int, int], limits: AcquireLimits = MANY, now_ms: int = 0
) -> list[tuple[int, int, int]]:
    fetch_offset = delivery.next_fetch_offset
    runs = delivery.acquire(member, fetch_offset, [BatchOffsets(*batch) for batch in batches], limits, LIMITS, now_ms)
    return [(run.first, run.last, run.delivery_count) for run in runs]


def _acknowledge(
    delivery: PartitionDelivery, member: str, first: int, last: int, *types: int, now_ms: int = 0
) -> list[tuple[int, int, RecordState, int]]:
    plan = delivery.acknowledge(member, [AckBatch(first, last, types)], LIMITS, now_ms)
    delivery.carry_out(plan)
    return [(run.first, run.last, run.state, run.delivery_count) for run in plan.changed]


def test_records_are_handed_out_once_and_the_start_moves_past_what_is_done() -> None:
    delivery = PartitionDelivery(10)
    assert _acquired(delivery, "a", (10, 14), (15, 19)) == [(10, 19, 1)]
    assert delivery.next_fetch_offset == 20
    assert _acquired(delivery, "b", (10, 19)) == []
    assert _acknowledge(delivery, "a", 12, 14, 1) == [(12, 14, ACKNOWLEDGED, 1)]
    assert (delivery.start_offset, delivery.done_count) == (10, 3)
    assert _acknowledge(delivery, "a", 10, 11, 3, 0) == [(10, 10, ARCHIVED, 1), (11, 11, ARCHIVED, 1)]
    assert (delivery.start_offset, delivery.end_offset, delivery.done_count) == (15, 20, 0)


def test_what_a_member_says_counts_once_the_coordinator_has_it() -> None:
    delivery = PartitionDelivery(0)
    _acquired(delivery, "a", (0, 9))
    first = delivery.acknowledge("a", [AckBatch(0, 4, (1,))], LIMITS, 0)
    delivery.begin(first)
    second = delivery.acknowledge("a", [AckBatch(5, 6, (2,)), AckBatch(7, 7, (1,))], LIMITS, 0)
    delivery.begin(second)
    with pytest.raises(InvalidRecordStateError):
        delivery.acknowledge("a", [AckBatch(0, 0, (1,))], LIMITS, 0)
    assert delivery.next_fetch_offset == 10, "what is in change is not handed out"
    assert _acquired(delivery, "b", (0, 9)) == []
    delivery.finish(second)
    assert delivery.start_offset == 0, "the start does not pass what is in change"
    assert (delivery.next_fetch_offset, delivery.done_count) == (5, 6)
    delivery.finish(first)
    assert (delivery.start_offset, delivery.done_count) == (5, 1)


def test_what_the_coordinator_refuses_is_undone_and_locks_that_ended_since_stay_so() -> None:
    delivery = PartitionDelivery(0)
    _acquired(delivery, "a", (0, 3))
    _acquired(delivery, "a", (4, 7), now_ms=500)
    for now_ms, expected in ((100, [(0, 7, ACQUIRED)]), (1_200, [(0, 3, AVAILABLE), (4, 7, ACQUIRED)])):
        plan = delivery.acknowledge("a", [AckBatch(0, 3, (1,)), AckBatch(4, 7, (3, 1, 2, 0))], LIMITS, 0)
        delivery.begin(plan)
        assert delivery.expire(LIMITS, 2_000).changed == [], "no lock is watched of what is in change"
        delivery.take_back(plan, LIMITS, now_ms)
        states = {at: run.state for run in delivery.runs for at in range(run.first, run.last + 1)}
        assert states == {at: state for first, last, state in expected for at in range(first, last + 1)}
    assert {run.member_id for run in delivery.runs} == {"", "a"}
    assert {run.due_ms for run in delivery.runs} == {0, 1_500}
    assert (delivery.start_offset, delivery.done_count) == (0, 0)


def test_each_of_thousands_of_records_may_fare_otherwise() -> None:
    delivery = PartitionDelivery(0)
    limits = DeliveryLimits(locks=10_000)
    many = AcquireLimits(records=4_000, batch=500)
    delivery.acquire("a", 0, [BatchOffsets(at, at + 499) for at in range(0, 4_000, 500)], many, limits, 0)
    plan = delivery.acknowledge("a", [AckBatch(0, 3_999, (1, 3, 2, 0) * 1_000)], limits, 0)
    delivery.carry_out(plan)
    wanted = [ACKNOWLEDGED, ARCHIVED, AVAILABLE, ARCHIVED]
    assert [(run.first, run.last, run.state) for run in plan.changed] == [
        (at, at, wanted[at % 4]) for at in range(4_000)
    ]
    assert plan.rejected == set(range(1, 4_000, 4))
    assert delivery.start_offset == 2


def test_released_records_come_again_until_they_have_been_handed_out_too_often() -> None:
    delivery = PartitionDelivery(0)
    _acquired(delivery, "a", (0, 3))
    assert _acknowledge(delivery, "a", 1, 2, 2) == [(1, 2, AVAILABLE, 1)]
    assert delivery.next_fetch_offset == 1
    assert _acquired(delivery, "b", (0, 3)) == [(1, 2, 2)]
    assert _acknowledge(delivery, "b", 1, 2, 2) == [(1, 2, ARCHIVED, 2)]
    assert delivery.next_fetch_offset == 4


def test_a_lock_that_is_over_makes_records_available_and_a_renewed_one_does_not() -> None:
    delivery = PartitionDelivery(0)
    _acquired(delivery, "a", (0, 3))
    assert delivery.next_due_ms == 1_000
    assert _acknowledge(delivery, "a", 2, 2, 4, now_ms=600) == []
    plan = delivery.expire(LIMITS, 1_000)
    delivery.carry_out(plan)
    assert [(run.first, run.last, run.state) for run in plan.changed] == [(0, 1, AVAILABLE), (3, 3, AVAILABLE)]
    assert delivery.next_due_ms == 1_600
    assert delivery.next_fetch_offset == 0


def test_what_a_member_says_counts_whole_or_not_at_all() -> None:
    delivery = PartitionDelivery(0)
    _acquired(delivery, "a", (0, 3))
    _acknowledge(delivery, "a", 3, 3, 1)
    before = delivery.runs
    for member, first, last in (("b", 0, 0), ("a", 0, 3)):
        with pytest.raises(InvalidRecordStateError):
            delivery.acknowledge(member, [AckBatch(first, last, (1,))], LIMITS, 0)
    strict = DeliveryLimits(may_renew=False)
    with pytest.raises(InvalidRecordStateError, match="not enabled"):
        delivery.acknowledge("a", [AckBatch(0, 0, (4,))], strict, 0)
    with pytest.raises(InvalidRecordStateError, match="not found"):
        PartitionDelivery(0).acknowledge("a", [AckBatch(0, 0, (1,))], LIMITS, 0)
    for batch in (
        AckBatch(1, 0, (1,)),
        AckBatch(0, 2, (1, 1)),
        AckBatch(0, 0, ()),
        AckBatch(0, 0, (9,)),
        AckBatch(0, 4, (1,)),
        AckBatch(7, 9, (1,)),
    ):
        with pytest.raises(InvalidRequestError):
            delivery.acknowledge("a", [AckBatch(1, 1, (1,)), batch], LIMITS, 0)
    assert delivery.runs == before


def test_a_soft_limit_ends_with_a_batch_and_a_strict_one_where_it_is_said() -> None:
    soft, strict = PartitionDelivery(0), PartitionDelivery(0)
    batches = ((0, 4), (5, 9), (10, 14))
    assert _acquired(soft, "a", *batches, limits=AcquireLimits(7, 500)) == [(0, 9, 1)]
    assert _acquired(strict, "a", *batches, limits=AcquireLimits(7, 500, is_strict=True)) == [(0, 6, 1)]
    _acknowledge(strict, "a", 0, 6, 2)
    assert _acquired(strict, "a", *batches, limits=AcquireLimits(3, 500, is_strict=True)) == [(0, 2, 2)]
    assert _acquired(PartitionDelivery(0), "a", *batches, limits=AcquireLimits(500, 6)) == [(0, 9, 1), (10, 14, 1)]
    assert _acquired(PartitionDelivery(0), "a", *batches, limits=AcquireLimits(0, 6)) == []


def test_no_more_records_are_in_flight_than_there_may_be() -> None:
    delivery = PartitionDelivery(0)
    assert _acquired(delivery, "a", (0, 59), (60, 119)) == [(0, 119, 1)]
    assert not delivery.can_acquire(100)
    assert _acquired(delivery, "a", (120, 129)) == []
    _acknowledge(delivery, "a", 50, 50, 2)
    assert delivery.can_acquire(100)
    assert _acquired(delivery, "a", (0, 59), (60, 119), (120, 129)) == [(50, 50, 2)]


def test_offsets_that_compaction_took_are_passed_over() -> None:
    delivery = PartitionDelivery(0)
    assert _acquired(delivery, "a", (5, 9), (20, 24)) == [(5, 24, 1)]
    assert delivery.start_offset == 5


def test_after_a_restart_what_is_not_known_of_is_handed_out_again() -> None:
    delivery = PartitionDelivery(
        5, [RecordRun(0, 6, ARCHIVED, 1), RecordRun(10, 11, AVAILABLE, 1), RecordRun(14, 15, ACKNOWLEDGED, 1)]
    )
    assert (delivery.start_offset, delivery.end_offset, delivery.next_fetch_offset) == (7, 16, 7)
    assert _acquired(delivery, "a", (0, 20)) == [(7, 9, 1), (10, 11, 2), (12, 13, 1), (16, 20, 1)]


def test_what_the_log_does_not_have_any_more_is_not_handed_out() -> None:
    delivery = PartitionDelivery(0)
    _acquired(delivery, "a", (0, 9))
    _acknowledge(delivery, "a", 0, 4, 2)
    delivery.start_at(3)
    assert (delivery.start_offset, delivery.next_fetch_offset) == (3, 3)
    assert _acquired(delivery, "a", (4, 9)) == [(4, 4, 2)]
    assert delivery.start_offset == 3, "the start passes what is archived with the next word that is kept"
    delivery.start_at(8)
    assert [(run.first, run.last, run.state) for run in delivery.runs] == [(8, 9, ACQUIRED)]
    assert _acknowledge(delivery, "a", 5, 9, 1) == [(8, 9, ACKNOWLEDGED, 1)]
    delivery.start_at(30)
    delivery.start_at(2)
    assert (delivery.start_offset, delivery.next_fetch_offset) == (30, 30)


def test_records_that_were_given_back_often_come_in_ever_smaller_rows() -> None:
    """So that one that harms its members is soon alone, and only it is archived."""
    limits, delivery = DeliveryLimits(deliveries=5), PartitionDelivery(0)
    rows = []
    for turn in range(6):
        got = delivery.acquire("a", 0, [BatchOffsets(0, 7), BatchOffsets(8, 11)], AcquireLimits(8, 500), limits, turn)
        rows.append([(run.first, run.last, run.delivery_count) for run in got])
        delivery.carry_out(delivery.release("a", limits))
    assert rows == [
        [(0, 7, 1)],
        [(0, 7, 2)],
        [(0, 7, 3)],
        [(0, 3, 4)],
        [(0, 0, 5)],
        [(1, 1, 5)],
    ]


@dataclass
class _Record:
    state: RecordState = AVAILABLE
    count: int = 0
    member: str = ""
    due_ms: int = 0


@dataclass
class _PlainDelivery:
    """The same, offset by offset."""

    start: int = 0
    records: dict[int, _Record] = field(default_factory=dict)

    def settle(self) -> None:
        while self.start in self.records and self.records[self.start].state.is_done:
            del self.records[self.start]
            self.start += 1

    def give_up(self, record: _Record) -> None:
        record.state = ARCHIVED if record.count >= LIMITS.deliveries else AVAILABLE
        record.member = ""


@pytest.mark.parametrize("seed", range(20))
def test_runs_do_what_single_records_would(seed: int) -> None:
    """Whatever happens, each record has the state, count and owner that a model without runs gives it."""
    rng = random.Random(seed)
    delivery, model, now_ms = PartitionDelivery(0), _PlainDelivery(), 0
    for _ in range(300):
        now_ms += rng.randrange(200)
        end = model.start + len(model.records)
        member = rng.choice("abc")
        action = rng.choice(
            (
                "acquire",
                "acquire",
                "acknowledge",
                "acknowledge",
                "acknowledge",
                "release",
                "expire",
                "archive",
                "restart",
            )
        )
        if action == "acquire":
            first = rng.randint(max(delivery.next_fetch_offset - 2, 0), delivery.next_fetch_offset)
            batches = [BatchOffsets(at, at + 3) for at in range(first, first + rng.randrange(4, 40), 4)]
            limits = AcquireLimits(rng.randint(0, 30), rng.randint(1, 20), rng.random() < 0.5)
            got = delivery.acquire(member, batches[0].first, batches, limits, LIMITS, now_ms)
            for run in got:
                for offset in range(run.first, run.last + 1):
                    record = model.records.setdefault(offset, _Record())
                    assert record.state is AVAILABLE, f"seed {seed}: {offset} is handed out twice"
                    record.state, record.member, record.due_ms = ACQUIRED, member, now_ms + LIMITS.lock_ms
                    record.count += 1
                    assert record.count == run.delivery_count, f"seed {seed}"
            if limits.is_strict:
                assert sum(map(len, got)) <= limits.records, f"seed {seed}"
                for offset in range(model.start, delivery.end_offset):  # the batch of the last one is in flight whole
                    model.records.setdefault(offset, _Record())
                assert delivery.end_offset <= max(batches[-1].last + 1, end), f"seed {seed}"
        elif action == "acknowledge":
            first = rng.randint(max(model.start - 2, 0), max(end, 1))
            length = rng.randint(1, 6)
            types = tuple(rng.choices(range(5), k=rng.choice((1, length))))
            wanted = range(max(first, model.start), first + length)
            is_valid = first + length <= model.start or all(
                offset in model.records
                and model.records[offset].state is ACQUIRED
                and model.records[offset].member == member
                for offset in wanted
            )
            try:
                plan = delivery.acknowledge(member, [AckBatch(first, first + length - 1, types)], LIMITS, now_ms)
            except KafkaError:
                assert not is_valid, f"seed {seed}"
                continue
            assert is_valid, f"seed {seed}"
            delivery.carry_out(plan)
            for offset in wanted if first + length > model.start else ():
                type_ = types[0] if len(types) == 1 else types[offset - first]
                record = model.records[offset]
                if type_ == 4:
                    record.due_ms = now_ms + LIMITS.lock_ms
                elif type_ == 2:
                    model.give_up(record)
                else:
                    record.state, record.member = ACKNOWLEDGED if type_ == 1 else ARCHIVED, ""
        elif action in ("release", "expire"):
            is_release = action == "release"
            delivery.carry_out(delivery.release(member, LIMITS) if is_release else delivery.expire(LIMITS, now_ms))
            for record in model.records.values():
                if record.state is ACQUIRED and (record.member == member if is_release else record.due_ms <= now_ms):
                    model.give_up(record)
        elif action == "archive":
            first = rng.randint(model.start, max(end, 1))
            delivery.carry_out(delivery.archive([BatchOffsets(first, first + 2)]))
            for offset in range(first, first + 3):
                if offset in model.records and not model.records[offset].state.is_done:
                    model.records[offset].state, model.records[offset].member = ARCHIVED, ""
        else:
            kept = [run for run in delivery.runs if run.state is not ACQUIRED]
            delivery = PartitionDelivery(delivery.start_offset, kept)
            acquired = [record for record in model.records.values() if record.state is ACQUIRED]
            for record in acquired:  # how often it was handed out is not stored with it
                record.state, record.member, record.count = AVAILABLE, "", 0
            while model.records and (model.start + len(model.records) - 1) >= delivery.end_offset:
                del model.records[model.start + len(model.records) - 1]
        model.settle()
        found = {offset: run for run in delivery.runs for offset in range(run.first, run.last + 1)}
        assert delivery.start_offset == model.start, f"seed {seed}"
        assert {offset: (run.state, run.delivery_count, run.member_id) for offset, run in found.items()} == {
            offset: (record.state, record.count, record.member) for offset, record in model.records.items()
        }, f"seed {seed}"
