"""The client's part of SASL: what it does not tell somebody who only poses as the broker."""

from __future__ import annotations

import pytest

from stratalog.wire.client.options import Sasl
from stratalog.wire.client.sasl import SaslError, dialogue


@pytest.mark.parametrize("rounds", [b"1", b"4095", b"-1", b"0", b"10000001"])
def test_no_proof_is_given_for_fewer_rounds_than_make_guessing_slow(rounds: bytes) -> None:
    messages = dialogue(Sasl("SCRAM-SHA-256", "alice", "secret"))
    nonce = next(messages).partition(b"r=")[2]
    with pytest.raises(SaslError, match="rounds of SCRAM"):
        messages.send(b"r=" + nonce + b"more,s=c2FsdA==,i=" + rounds)


def test_a_proof_is_given_for_as_many_rounds_as_kafka_has() -> None:
    messages = dialogue(Sasl("SCRAM-SHA-256", "alice", "secret"))
    nonce = next(messages).partition(b"r=")[2]
    assert b",p=" in messages.send(b"r=" + nonce + b"more,s=c2FsdA==,i=4096")
    with pytest.raises(SaslError, match="does not prove"):
        messages.send(b"v=c2FsdA==")
