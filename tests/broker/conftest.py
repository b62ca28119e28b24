"""What tests over a real socket share. Each module makes a `broker` to its own needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    """A connection to the module's broker."""
    with Wire(broker.bootstrap_servers) as wire:
        yield wire
