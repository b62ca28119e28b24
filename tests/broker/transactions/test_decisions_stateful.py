"""Whatever producers ask, in whatever order, and wherever the coordinator stops: a transactional id keeps its
promises."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stratalog.broker.groups.offsets import TopicPartition
from stratalog.broker.transactions import decisions
from stratalog.broker.transactions.records import decode_key, decode_value, encode_key, encode_value
from stratalog.broker.transactions.states import TransactionState
from stratalog.broker.transactions.transaction import EPOCH_MAX, ProducerIdAndEpoch, Transaction
from stratalog.errors import KafkaError

PARTITIONS = st.frozensets(st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 2)), min_size=1)


class TransactionalId(RuleBasedStateMachine):
    """Several producers under one id, old clients and new ones.

    Markers are written at once, later, or after a restart.
    """

    @initialize(epoch=st.sampled_from([-1, 0, EPOCH_MAX - 3, EPOCH_MAX - 2]), version=st.sampled_from([0, 2]))
    def begin(self, epoch: int, version: int) -> None:
        self.version = version
        self.ids = itertools.count(1)
        self.now = 1_000
        self.known = Transaction.new("tx", 0, 60_000, self.now)
        if epoch >= 0:
            self.known = self.known.initialised(epoch, -1, 60_000, self.now)
        self.producers: list[ProducerIdAndEpoch] = [self.known.producer]
        #: The highest epoch of each producer id so far.
        self.highest: dict[int, int] = {}
        self.decided: bool | None = None

    def _step(self, changed: Transaction) -> None:
        self.known = changed
        assert self.known.producer_epoch >= self.highest.get(self.known.producer_id, -1)
        self.highest[self.known.producer_id] = self.known.producer_epoch
        if changed.state.is_prepared:
            self.decided = changed.state is TransactionState.PREPARE_COMMIT

    def _new_id(self) -> int:
        return next(self.ids)

    @rule(pick=st.integers(0, 100), expects=st.booleans())
    def init(self, pick: int, expects: bool) -> None:
        expected = self.producers[pick % len(self.producers)] if expects else None
        if expected is not None and expected.epoch < 0:
            expected = None
        try:
            changed = decisions.on_init_producer_id(
                self.known, expected, 60_000, self.now, self._new_id, transaction_version=self.version
            )
        except KafkaError:
            return
        self._step(changed)
        if changed.state is TransactionState.EMPTY:
            assert changed.producer_epoch < EPOCH_MAX
            self.producers.append(changed.producer)

    @rule(pick=st.integers(0, 100), partitions=PARTITIONS, version=st.sampled_from([0, 2]))
    def add(self, pick: int, partitions: frozenset[TopicPartition], version: int) -> None:
        producer = self.producers[pick % len(self.producers)]
        try:
            changed = decisions.on_add_partitions(self.known, producer, partitions, version, self.now)
        except KafkaError:
            assert producer != self.known.producer or self.known.state.is_prepared
            return
        assert producer == self.known.producer
        if changed is not None:
            self._step(changed)
        assert partitions <= self.known.partitions

    @rule(pick=st.integers(0, 100), committed=st.booleans(), version=st.sampled_from([0, 2]), now=st.booleans())
    def end(self, pick: int, committed: bool, version: int, now: bool) -> None:
        producer = self.producers[pick % len(self.producers)]
        before = self.known
        if producer.epoch < 0:
            return
        try:
            changed = decisions.on_end(before, producer, version, self.now, self._new_id, committed=committed)
        except KafkaError:
            assert self.known is before
            return
        if changed is None:  # a retry: the outcome is the one that was decided
            assert self.decided is committed
            return
        assert producer == before.producer
        assert committed <= (before.state is TransactionState.ONGOING)
        self._step(changed)
        if now:
            self.complete()
            assert decisions.on_end(self.known, producer, version, self.now, self._new_id, committed=committed) is None

    @precondition(lambda self: self.known.state.is_prepared)
    @rule()
    def complete(self) -> None:
        commits = self.known.state is TransactionState.PREPARE_COMMIT
        changed = self.known.completed(self.now)
        assert self.decided is commits
        self._step(changed)
        if changed.producer_epoch < EPOCH_MAX:
            self.producers.append(changed.producer)

    @rule(version=st.sampled_from([0, 1]))
    def restart(self, version: int) -> None:
        """What is loaded is what was stored; the old encoding lacks what came with the new one."""
        stored = decode_value("tx", encode_value(self.known, version))
        assert decode_key(encode_key("tx")) == "tx"
        if version == 0:
            return
        assert stored == replace(self.known, last_producer_epoch=-1)
        self.known = stored

    @rule(ms=st.sampled_from([1, 60_001]))
    def time_passes(self, ms: int) -> None:
        self.now += ms
        if self.known.is_timed_out(self.now):
            before = self.known
            self._step(decisions.on_fence(before, self.now, self._new_id, transaction_version=self.version))
            assert self.known.producer != before.producer

    @invariant()
    def partitions_are_those_of_an_open_or_decided_transaction(self) -> None:
        if hasattr(self, "known") and self.known.state.may_expire:
            assert not self.known.partitions


TestTransactionalId = TransactionalId.TestCase
TestTransactionalId.settings = settings(deadline=None, max_examples=100, stateful_step_count=30)
