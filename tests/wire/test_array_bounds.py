"""An array that announces more elements than there are bytes costs nothing and ends nothing but its request."""

from __future__ import annotations

import dataclasses
import random
import subprocess
import sys
import types
import typing
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from stratalog.broker.apis import load_apis
from stratalog.errors import InvalidRequestError
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.array_bounds import _walk, check_arrays
from stratalog.wire.protocol import make_message, read_request, request_class, response_class, write_message

_INTS = {"int8": 7, "int16": 15, "uint16": 15, "int32": 31, "int64": 63}


def random_message(cls: Any, chance: random.Random) -> Any:
    """A message with something in most of its fields."""
    hints = typing.get_type_hints(cls)
    return make_message(
        cls, {field.name: _random(hints[field.name], field, chance) for field in dataclasses.fields(cls)}
    )


def _random(hint: Any, field: dataclasses.Field[Any], chance: random.Random) -> Any:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        if chance.random() < 0.3:
            return None
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
    if typing.get_origin(hint) is tuple:
        element = typing.get_args(hint)[0]
        return tuple(_random(element, field, chance) for _ in range(chance.choice([0, 1, 2, 3])))
    if dataclasses.is_dataclass(hint):
        return random_message(hint, chance)
    kind = field.metadata["kafka_type"]
    if kind == "string":
        return "ä" * chance.choice([0, 1, 70])
    if kind in ("bytes", "records"):
        return chance.randbytes(chance.choice([0, 3, 200]))
    if kind in _INTS:
        return chance.randrange(1 << _INTS[kind])
    if kind == "uuid":
        return uuid.UUID(bytes=chance.randbytes(16))
    return {"bool": True, "float64": 1.5, "datetime_i64": 1_700_000_000_000}.get(kind, 0)


def served() -> Iterator[tuple[Any, int]]:
    """(class of a request or response, seed) of all that the broker reads and writes."""
    for key, api in sorted(load_apis().items()):
        for version in range(api.min_version, api.max_version + 1):
            yield request_class(ApiKey(key), version), 100 * key + version
            yield response_class(ApiKey(key), version), 100 * key + version


def test_the_walk_ends_where_every_message_does() -> None:
    count = 0
    for cls, seed in served():
        chance = random.Random(seed)
        for _ in range(5):
            data = write_message(random_message(cls, chance))
            before = b"12345"[: chance.randrange(5)]
            assert _walk(cls)[0](before + data, len(before)) == len(before) + len(data), (cls, seed)
            count += 1
    assert count > 1000


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (ApiKey.METADATA, 1, b"\x7f\xff\xff\xff"),
        (ApiKey.METADATA, 12, b"\xff\xff\xff\xff\x0f\1\1\0"),
        (ApiKey.OFFSET_FETCH, 1, b"\0\1g" + b"\0\0\0\1" + b"\0\1t" + b"\x10\0\0\0"),
        (ApiKey.OFFSET_FETCH, 1, b"\0\1g" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2" + b"1234567"),
    ],
)
def test_more_elements_than_bytes_are_refused(key: ApiKey, version: int, body: bytes) -> None:
    with pytest.raises(InvalidRequestError, match=r"an array of \d+ elements, but"):
        check_arrays(request_class(key, version), body)


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (ApiKey.LIST_OFFSETS, 1, bytes(4) + b"\xff\xff\xff\xff"),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, bytes(4) + b"\0\0"),
    ],
)
def test_null_where_there_has_to_be_an_array_is_refused(key: ApiKey, version: int, body: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="an array of -1 elements, where there has to be one"):
        read_request(key, version, memoryview(body), 0)


def test_null_is_read_where_it_may_stand() -> None:
    assert read_request(ApiKey.METADATA, 1, memoryview(b"\xff\xff\xff\xff"), 0).topics is None
    assert read_request(ApiKey.METADATA, 12, memoryview(b"\0\1\1\0"), 0).topics is None


EVERYWHERE = """
import random, resource
from tests.wire.test_array_bounds import random_message, served
from stratalog.errors import InvalidRequestError
from stratalog.wire.protocol import read_message, write_message
messages = [(cls, write_message(random_message(cls, random.Random(seed)))) for cls, seed in served()]
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
refused = 0
for cls, data in messages:
    for position in range(min(len(data), 60)):
        for size in (b"\\x7f\\xff\\xff\\xff", b"\\xff\\xff\\xff\\xff\\x0f"):
            damaged = data[:position] + size + data[position + len(size) :]
            try:
                read_message(cls, damaged)
            except InvalidRequestError:
                refused += 1
            except Exception:
                pass  # what else kio refuses
print(refused)
"""


def test_no_length_anywhere_in_a_message_ends_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", EVERYWHERE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 1000
