"""What the transaction APIs share."""

from __future__ import annotations

from stratalog.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError


def code_for(error: KafkaError, *, knows_fenced: bool) -> int:
    """Return the error code for a client that may be too old for PRODUCER_FENCED.

    It treats INVALID_PRODUCER_EPOCH the same.
    """
    if isinstance(error, ProducerFencedError) and not knows_fenced:
        return InvalidProducerEpochError.code
    return error.code
