"""Common code of the transaction APIs."""

from __future__ import annotations

from stratalog.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError


def code_for(error: KafkaError, *, knows_fenced: bool) -> int:
    """Return the error code; INVALID_PRODUCER_EPOCH for a client that may not know PRODUCER_FENCED."""
    if isinstance(error, ProducerFencedError) and not knows_fenced:
        return InvalidProducerEpochError.code
    return error.code
