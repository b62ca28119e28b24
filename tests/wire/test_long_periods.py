"""Periods of any 64 bits are read, though Python's are shorter: the longest stand for longer ones."""

from __future__ import annotations

import struct

import pytest
from tests.support.wire import build

from stratalog.errors import InvalidRequestError
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.protocol import read_request, request_class, write_message

LONGEST = 2**63 - 1
KINDS = [
    (ApiKey.CREATE_DELEGATION_TOKEN, "max_lifetime", 1),
    (ApiKey.CREATE_DELEGATION_TOKEN, "max_lifetime", 3),
    (ApiKey.RENEW_DELEGATION_TOKEN, "renew_period", 1),
    (ApiKey.RENEW_DELEGATION_TOKEN, "renew_period", 2),
    (ApiKey.EXPIRE_DELEGATION_TOKEN, "expiry_time_period", 1),
    (ApiKey.EXPIRE_DELEGATION_TOKEN, "expiry_time_period", 2),
]


@pytest.mark.parametrize(("key", "field", "version"), KINDS)
def test_a_period_that_is_too_long_is_a_long_one(key: ApiKey, field: str, version: int) -> None:
    cls = request_class(key, version)
    values = {field: 5, "renewers": ()} if key is ApiKey.CREATE_DELEGATION_TOKEN else {field: 5, "hmac": b"x"}
    data = bytearray(write_message(build(cls, values)))
    at = len(data) - 8 - cls.__flexible__
    for period_ms, expected_ms in ((5, 5), (-1, -1), (LONGEST, LONGEST // 1000), (-LONGEST - 1, -(LONGEST // 1000))):
        struct.pack_into(">q", data, at, period_ms)
        period = getattr(read_request(key, version, memoryview(data), 0), field)
        assert (period.days * 86_400 + period.seconds) * 1000 + period.microseconds // 1000 == expected_ms
    for size in range(len(data)):
        with pytest.raises(InvalidRequestError):
            read_request(key, version, memoryview(data)[:size], 0)
