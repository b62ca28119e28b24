"""The model of the torture: offsets that a power failure took, and that were given again."""

from __future__ import annotations

import pytest

from tests.torture.model import Batch, Found, Leniency, PartitionModel, Sent, Stored, Violation

_NOTHING_HAPPENED = Leniency()
_POWER_WAS_LOST = Leniency(power_was_lost=True)
_FLUSHED = Stored(0, Sent(b"key", b"log|flushed"))
_LOST = Sent(b"key", b"log|lost")
_AGAIN = Stored(1, Sent(b"key", b"log|again"))


def _with_a_flushed_record() -> PartitionModel:
    model = PartitionModel(b"log", compacted=True, retention_bytes=None)
    model.tried(Batch(0, [_FLUSHED.record]))
    model.acknowledged(0, 0, False)
    model.is_flushed(1)
    return model


def _append_in_a_transaction(model: PartitionModel) -> None:
    model.tried(Batch(1, [_LOST], producer=7, sequence=0, is_transactional=True))
    model.acknowledged(1, 1, False)


def _lose_power_and_append_again(model: PartitionModel) -> None:
    model.check(Found(0, 1, 100, [_FLUSHED]), _POWER_WAS_LOST)
    model.tried(Batch(2, [_AGAIN.record]))
    model.acknowledged(2, 1, False)


def test_a_record_at_the_offset_of_an_aborted_one_that_was_lost_supersedes_older_ones() -> None:
    model = _with_a_flushed_record()
    _append_in_a_transaction(model)
    model.ending(7)
    model.ended(7, 2, aborted=True)
    _lose_power_and_append_again(model)
    model.check(Found(0, 2, 100, [_AGAIN]), _NOTHING_HAPPENED)


def test_a_record_at_the_offset_of_one_of_a_lost_open_transaction_may_not_be_lost() -> None:
    model = _with_a_flushed_record()
    _append_in_a_transaction(model)
    _lose_power_and_append_again(model)
    with pytest.raises(Violation, match="was acknowledged at 1 and is lost"):
        model.check(Found(0, 2, 100, [_FLUSHED]), _NOTHING_HAPPENED)


def test_a_record_at_the_offset_of_a_damaged_one_that_was_lost_may_not_be_damaged() -> None:
    model = _with_a_flushed_record()
    _append_in_a_transaction(model)
    model.check(Found(0, 2, 100, [_FLUSHED], damaged=[1]), Leniency(records_were_damaged=True))
    _lose_power_and_append_again(model)
    with pytest.raises(Violation, match="damage at"):
        model.check(Found(0, 2, 100, [_FLUSHED], damaged=[1]), _NOTHING_HAPPENED)
