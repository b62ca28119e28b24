"""The maker of requests by seed: what it makes can be written."""

from __future__ import annotations

from random import Random

from stratalog.wire.api_keys import ApiKey
from tests.comparison.requests import Names, _Maker


def test_what_has_no_sign_is_never_negative() -> None:
    maker = _Maker(Random(7), Names(0))
    ports = set()
    for _ in range(200):
        request = maker.request(ApiKey.STREAMS_GROUP_HEARTBEAT, 0)
        endpoint = request.fields["user_endpoint"]
        if endpoint is not None:
            ports.add(endpoint["port"])
    assert ports
    assert all(port >= 0 for port in ports)
