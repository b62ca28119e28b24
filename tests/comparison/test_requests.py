"""The maker of requests by seed: what it makes can be written."""

from __future__ import annotations

from random import Random

from stratalog.wire.api_keys import ApiKey
from tests.comparison.requests import Names, Ref, _Maker


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


def test_no_marker_fences_a_transaction_and_no_topic_grows_beyond_measure() -> None:
    """Kafka never ends such a transaction, and is busy for minutes with 10,000 partitions."""
    maker = _Maker(Random(7), Names(0))
    transactional = set(Names(0).transactional_ids)
    seen = 0
    for _ in range(400):
        for marker in maker.request(ApiKey.WRITE_TXN_MARKERS, 1).fields["markers"]:
            owner = marker["producer_id"]
            if isinstance(owner, Ref) and owner.name in transactional:
                seen += 1
                assert marker["producer_epoch"] in (-1, 0, Ref("producer epoch", owner.name))
        for topic in maker.request(ApiKey.CREATE_PARTITIONS, 3).fields["topics"]:
            assert topic["count"] < 100 or topic["count"] > 10_000 + max(each.partitions for each in Names(0).topics)
    assert seen
