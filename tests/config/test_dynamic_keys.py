"""What Kafka changes while it runs is changed here too: its list of dynamic keys beside ours."""

from __future__ import annotations

from stratalog.config.broker import BROKER_KEYS
from stratalog.config.kafka_keys import kafka_broker_keys

#: Without the prefix of a listener they are read at the start here.
READ_AT_THE_START = {"listeners", "listener.security.protocol.map"}
SECURITY = ("ssl.", "sasl.")


def test_every_key_that_kafka_changes_while_it_runs_may_be_changed() -> None:
    fixed = {
        key.name
        for key in kafka_broker_keys()
        if key.dynamic and key.name in BROKER_KEYS and not BROKER_KEYS[key.name].dynamic
    }
    assert {name for name in fixed if not name.startswith(SECURITY)} == READ_AT_THE_START
