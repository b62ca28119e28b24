"""The commands' own client, against brokers that are older, silent or gone."""

from __future__ import annotations

import io
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kio.serial import entity_writer

from stratalog.errors import UsageError
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.client import Cluster, UnreachableError
from stratalog.wire.protocol import make_message, message_module, response_class

UNSUPPORTED_VERSION = 35


@contextmanager
def listening(answer: Callable[[int, int], bytes | None]) -> Iterator[str]:
    """A server that answers one connection: `answer(api key, version)` is a response's body; None is silence."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while head := connection.recv(4):
                    frame = connection.recv(struct.unpack(">i", head)[0])
                    key, version, correlation_id = struct.unpack_from(">hhi", frame)
                    body = answer(key, version)
                    if body is not None:
                        connection.sendall(struct.pack(">ii", 4 + len(body), correlation_id) + body)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(30)


def api_versions(version: int, apis: dict[ApiKey, tuple[int, int]], error_code: int = 0) -> bytes:
    module = message_module(ApiKey.API_VERSIONS, version, "response")
    keys = tuple(
        make_message(module.ApiVersion, {"api_key": int(key), "min_version": low, "max_version": high})
        for key, (low, high) in apis.items()
    )
    cls: Any = response_class(ApiKey.API_VERSIONS, version)
    out = io.BytesIO()
    entity_writer(cls)(out, make_message(cls, {"error_code": error_code, "api_keys": keys}))
    return out.getvalue()


def test_an_older_broker_is_asked_again_in_its_own_version() -> None:
    asked: list[int] = []

    def older(_key: int, version: int) -> bytes:
        asked.append(version)
        if version > 2:
            return api_versions(0, {ApiKey.API_VERSIONS: (0, 2)}, UNSUPPORTED_VERSION)
        return api_versions(version, {ApiKey.METADATA: (0, 5), ApiKey.DELETE_TOPICS: (0, 0)})

    with listening(older) as address, Cluster(address) as cluster:
        assert asked == [4, 2]
        assert cluster.any.version(ApiKey.METADATA, (1, 12)) == 5
        with pytest.raises(UsageError, match="does not speak DeleteTopics in versions 1 to 6"):
            cluster.any.version(ApiKey.DELETE_TOPICS, (1, 6))
        with pytest.raises(UsageError, match="does not speak UpdateFeatures"):
            cluster.any.call(ApiKey.UPDATE_FEATURES, (0, 2))


def test_a_broker_that_is_silent_is_left() -> None:
    with (
        listening(lambda *_: None) as address,
        pytest.raises(UnreachableError, match="did not answer in time"),
    ):
        Cluster(address, timeout_s=0.05)


def test_a_broker_that_goes_away_is_unreachable() -> None:
    with (
        listening(lambda *_: api_versions(4, {ApiKey.METADATA: (0, 12)})) as address,
        Cluster(address) as cluster,
    ):
        cluster.any.close()
        with pytest.raises(UnreachableError, match=address):
            cluster.any.call(ApiKey.METADATA, (1, 12), topics=None)


def test_a_part_of_a_request_that_a_version_lacks_is_left_out() -> None:
    def old(key: int, version: int) -> bytes:
        if key == ApiKey.API_VERSIONS:
            return api_versions(version, {ApiKey.METADATA: (1, 1)})
        return struct.pack(">iii", 0, 1, 0)  # no brokers, controller 1, no topics

    with listening(old) as address, Cluster(address) as cluster:
        answer = cluster.any.call(ApiKey.METADATA, (1, 12), topics=None, allow_auto_topic_creation=False)
        assert (answer.controller_id, answer.topics) == (1, ())
