"""Records of `__transaction_state`: round trips, damage, and the bytes that Kafka wrote."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.broker.groups.offsets import TopicPartition
from stratalog.broker.transactions.records import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    value_version,
)
from stratalog.broker.transactions.states import TransactionState
from stratalog.broker.transactions.transaction import Transaction
from stratalog.cli.dump.decoders import decoder_for
from stratalog.errors import CorruptRecordError
from stratalog.records.record import Record

_STORED = [state for state in TransactionState if state is not TransactionState.EMPTY]
TRANSACTIONS = st.builds(
    Transaction,
    st.text(min_size=1, max_size=20),
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**15 - 1),
    st.integers(1, 2**31 - 1),
    st.sampled_from(_STORED),
    st.frozensets(st.builds(TopicPartition, st.text(min_size=1, max_size=5), st.integers(0, 2**31 - 1))),
    st.integers(-1, 2**60),
    st.integers(0, 2**60),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**63 - 1),
    st.just(-1),
    st.integers(0, 2),
)


@given(TRANSACTIONS)
@settings(deadline=None)
def test_what_is_written_is_read_back(transaction: Transaction) -> None:
    """Every transaction comes back from its record; the dump command reads the same from it."""
    key, value = encode_key(transaction.transactional_id), encode_value(transaction, 1)
    assert decode_key(key) == transaction.transactional_id
    assert decode_value(transaction.transactional_id, value) == transaction
    reported = decoder_for("transaction-log")(Record(0, 0, key, value))
    assert f'"producerId":{transaction.producer_id},' in str(reported)


@given(TRANSACTIONS, st.sampled_from([0, 1]), st.data())
@settings(deadline=None)
def test_a_value_that_is_cut_off_is_damaged(transaction: Transaction, version: int, data: st.DataObject) -> None:
    """No part of a value is taken for a whole one."""
    value = encode_value(transaction, version)
    cut = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(CorruptRecordError):
        decode_value("tx", value[:cut])


def test_damage_is_named() -> None:
    value = bytearray(encode_value(Transaction.new("tx", 1, 1, 1), 0))
    value[16] = 9
    with pytest.raises(CorruptRecordError, match="state 9, known are 0 to 7"):
        decode_value("tx", bytes(value))
    with pytest.raises(CorruptRecordError, match="version 2, known are 0 to 1"):
        decode_value("tx", b"\0\2" + bytes(value[2:]))
    assert decode_key(b"\0\1anything") is None


def test_the_version_of_values_goes_with_the_feature() -> None:
    assert [value_version(level) for level in (0, 1, 2)] == [0, 1, 1]
