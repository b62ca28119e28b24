"""A client may know tagged fields that the broker does not: they are skipped wherever they stand (KIP-482)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from tests.broker.test_group_and_admin_versions import ASKED, VERSIONS, _fitting
from tests.support.wire import Wire, build

from stratalog.broker.server.server import Broker
from stratalog.errors import InvalidRequestError
from stratalog.util.varint import encode_unsigned
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.protocol import read_request, request_class, write_message
from stratalog.wire.unknown_tags import _Walk, without_unknown_tags

FLEXIBLE = [(key, version) for key, version in VERSIONS if request_class(ApiKey(key), version).__flexible__]
UNKNOWN = encode_unsigned(9_999) + encode_unsigned(3) + b"new"


class _Adding(_Walk):
    """Puts an unknown tagged field behind those of every part of a message."""

    def _tagged(self, known: set[int | None]) -> None:
        count = self.data[self.position]
        super()._tagged(known)
        at = next(i for i in range(len(self.kept) - 1, -1, -1) if self.kept[i] == bytes([count]))
        self.kept[at] = bytes([count + 1])
        self.kept.append(UNKNOWN)


def _asked(key: int, version: int) -> tuple[Any, bytes]:
    cls = request_class(ApiKey(key), version)
    return cls, write_message(build(cls, _fitting(cls, ASKED[key])))


def _with_unknown(cls: Any, data: bytes) -> bytes:
    walk = _Adding(data)
    walk.entity(cls)
    return b"".join(walk.kept)


@pytest.mark.parametrize(("key", "version"), FLEXIBLE)
def test_a_request_is_read_as_if_they_were_not_there(key: int, version: int) -> None:
    cls, data = _asked(key, version)
    newer = _with_unknown(cls, data)
    assert newer.count(UNKNOWN) >= 1
    assert without_unknown_tags(cls, newer) == data
    assert without_unknown_tags(cls, data) == data
    read = [read_request(ApiKey(key), version, memoryview(request), 0) for request in (data, newer)]
    assert read[0] == read[1]


@pytest.mark.parametrize(("key", "version"), FLEXIBLE)
def test_a_request_cut_anywhere_is_refused(key: int, version: int) -> None:
    cls, data = _asked(key, version)
    newer = _with_unknown(cls, data)
    for size in range(len(newer)):
        with pytest.raises(InvalidRequestError):
            without_unknown_tags(cls, newer[:size])


def test_the_broker_answers_such_a_request(tmp_path: Path) -> None:
    key, version = ApiKey.METADATA, 12
    cls = request_class(key, version)
    body = _with_unknown(cls, write_message(build(cls, {"topics": None})))
    head = struct.pack(">hhih", key, version, 7, -1) + b"\0"
    with Broker(data_dir=tmp_path, listen="127.0.0.1:0") as broker, Wire(broker.bootstrap_servers) as wire:
        wire.send_bytes(struct.pack(">i", len(head + body)) + head + body)
        assert wire.receive(key, version).cluster_id
