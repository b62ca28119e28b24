"""Invariant: what is due by second holds every transaction that has timed out, and none that is not open."""

from __future__ import annotations

import random

from stratalog.broker.groups import TopicPartition
from stratalog.broker.transactions.timeouts import TransactionTimeouts
from stratalog.broker.transactions.transaction import Transaction

PARTITION = TopicPartition("one", 0)


def test_the_same_are_found_as_by_a_look_at_all() -> None:
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    timeouts = TransactionTimeouts()
    known: dict[str, Transaction] = {}
    now_ms = 1_700_000_000_000
    for step in range(5000):
        now_ms += draw.randrange(200)
        name = f"id-{draw.randrange(50)}"
        if name not in known or draw.random() < 0.05:
            known[name] = Transaction.new(name, 1, 60_000, now_ms).initialised(
                0, -1, draw.choice([1, 500, 60_000]), now_ms
            )
        elif known[name].state.is_prepared:
            known[name] = known[name].completed(now_ms)
        elif draw.random() < 0.3 and known[name].partitions:
            known[name] = known[name].ended(2, now_ms, committed=draw.random() < 0.5)
        else:
            known[name] = known[name].with_partitions([PARTITION], 2, now_ms)
        timeouts.note(known[name])
        if draw.random() < 0.02:
            del known[name]
            timeouts.forget(name)
        due = list(timeouts.due(now_ms))
        late = {name for name, each in known.items() if each.is_timed_out(now_ms)}
        is_open = {name for name, each in known.items() if each.start_ms >= 0 and each.partitions}
        assert late <= set(due) <= is_open, f"seed {seed}, step {step}"
        assert len(due) == len(set(due)), f"seed {seed}, step {step}"


def test_changes_are_possible_while_the_due_ones_are_yielded() -> None:
    timeouts = TransactionTimeouts()
    for number in range(10):
        timeouts.note(
            Transaction.new(f"id-{number}", 1, 1, 0).initialised(0, -1, 1, 0).with_partitions([PARTITION], 2, 0)
        )
    for name in timeouts.due(10_000):
        timeouts.forget(name)
        timeouts.forget(name)
    assert not list(timeouts.due(10_000))
    assert not timeouts._seconds
    assert not timeouts._names
