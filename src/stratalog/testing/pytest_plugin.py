"""Fixtures for pytest: a broker, and topics in it. pytest finds them once stratalog is installed.

    def test_orders(stratalog_broker, stratalog_topic):
        producer = Producer({"bootstrap.servers": stratalog_broker.bootstrap_servers})
        producer.produce(stratalog_topic, b"hello")

The broker is one for the whole run, in a temporary directory, with settings that suit tests (`Broker.testing`). Each
test that asks for a topic gets one of its own. To run the broker with other settings, override `stratalog_config`.

A test that moves time or lets things fail asks for a broker of its own:

    def test_old_orders_go(stratalog_own_broker):
        stratalog_own_broker.clock.advance(days=8)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from stratalog.testing.broker import BrokerUnderTest

_NOT_IN_A_TOPIC = re.compile(r"[^a-zA-Z0-9._-]+")
#: Room for the number in a name of at most 249 characters.
_NAME_CHARACTERS_MAX = 200


@pytest.fixture(scope="session")
def stratalog_config() -> Mapping[str, object]:
    """Return configuration keys to add to those of `Broker.testing`. Override it to set some."""
    return {}


@pytest.fixture(scope="session")
def stratalog_broker(stratalog_config: Mapping[str, object]) -> Iterator[BrokerUnderTest]:
    """Return a broker that serves for the whole run, on a free port of this machine."""
    with _broker(stratalog_config) as broker:
        yield broker


@pytest.fixture
def stratalog_own_broker(stratalog_config: Mapping[str, object]) -> Iterator[BrokerUnderTest]:
    """Return a broker for one test alone, whose clock may be moved and which may be made to fail."""
    with _broker(stratalog_config) as broker:
        yield broker


def _broker(config: Mapping[str, object]) -> BrokerUnderTest:
    from stratalog.testing.broker import BrokerUnderTest  # pytest loads this module even where no test asks for one

    return BrokerUnderTest(config)


@pytest.fixture(scope="session")
def _stratalog_numbers() -> Iterator[int]:
    return count(1)


@pytest.fixture
def stratalog_topic(
    stratalog_broker: BrokerUnderTest, request: pytest.FixtureRequest, _stratalog_numbers: Iterator[int]
) -> str:
    """Create a topic of one partition, named after the test, and return its name."""
    test = _NOT_IN_A_TOPIC.sub("-", request.node.name).strip("-")[:_NAME_CHARACTERS_MAX]
    name = f"{test}-{next(_stratalog_numbers)}"
    stratalog_broker.create_topic(name)
    return name
