"""The first message of an API in a version waits for its code, which is imported beside the loop: others do not."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.server import message_calls
from stratalog.broker.server.server import Broker
from stratalog.wire import protocol
from stratalog.wire.api_keys import ApiKey


class Imports:
    """Imports of one API that end when they may."""

    def __init__(self, patch: pytest.MonkeyPatch, key: ApiKey, version: int) -> None:
        self._one = key, version
        self.begun = 0
        self.may_end = threading.Event()
        self.error: ImportError | None = None
        patch.setattr(protocol, "_prepared", protocol._prepared - {self._one})
        patch.setattr(message_calls, "prepare", self._prepare)

    def _prepare(self, key: ApiKey, version: int) -> None:
        if (key, version) == self._one:
            self.begun += 1
            assert self.may_end.wait(60)
            if self.error is not None:
                raise self.error
        protocol.prepare(key, version)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.testing() as broker:
        broker.create_topic("t")
        yield broker


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[Imports]:
    held = Imports(monkeypatch, ApiKey.LIST_GROUPS, 4)
    yield held
    held.may_end.set()


def test_others_are_served_and_its_own_answers_keep_their_order(broker: Broker, wire: Wire, imports: Imports) -> None:
    wire.send_bytes(
        wire.frame(ApiKey.METADATA, 12, topics=None)
        + wire.frame(ApiKey.LIST_GROUPS, 4, states_filter=())
        + wire.frame(ApiKey.METADATA, 12, topics=None)
        + wire.frame(ApiKey.LIST_GROUPS, 4, states_filter=())
    )
    wait_until(lambda: imports.begun, "its import begins")
    with Wire(broker.bootstrap_servers) as other:
        assert other.call(ApiKey.METADATA, 12, topics=None).topics
    imports.may_end.set()
    for _ in range(2):
        assert wire.receive(ApiKey.METADATA, 12).topics
        assert wire.receive(ApiKey.LIST_GROUPS, 4).error_code.value == 0
    assert imports.begun == 1


def test_a_client_that_goes_away_takes_its_request_along(broker: Broker, wire: Wire, imports: Imports) -> None:
    gone = Wire(broker.bootstrap_servers)
    gone.send_bytes(gone.frame(ApiKey.LIST_GROUPS, 4, states_filter=()))
    wait_until(lambda: imports.begun, "its import begins")
    gone.close()
    imports.may_end.set()
    assert wire.call(ApiKey.LIST_GROUPS, 4, states_filter=()).error_code.value == 0


def test_code_that_cannot_be_imported_closes_the_connection_alone(
    broker: Broker, wire: Wire, imports: Imports, caplog: pytest.LogCaptureFixture
) -> None:
    imports.error = ImportError("the file is gone")
    imports.may_end.set()
    with Wire(broker.bootstrap_servers) as other:
        other.send_bytes(other.frame(ApiKey.LIST_GROUPS, 4, states_filter=()))
        with pytest.raises(ConnectionError):
            other.receive_bytes()
    assert "ListGroups v4 cannot be loaded: the file is gone" in caplog.text
    imports.error = None
    assert wire.call(ApiKey.LIST_GROUPS, 4, states_filter=()).error_code.value == 0
