"""Framing: whatever the pieces in which a stream arrives, the same requests come out, whole and in order."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Hashable

import pytest

from stratalog.broker.server import framing
from stratalog.broker.server.framing import Framing, LargeMemory
from stratalog.broker.server.request_memory import Memory
from stratalog.errors import InvalidRequestError

SCRATCH_BYTES = 64
SIZE_MAX = 1000


class Shared:
    """Shared memory that is overwritten whenever it may be."""

    def __init__(self) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.taken: list[bytearray] = []
        self.memory: LargeMemory = self

    def has_room(self, request: Hashable, size: int) -> bool:
        return True

    def take(self, request: Hashable, size: int, wanted: int) -> Memory:
        assert 0 < size <= wanted
        self.taken.append(bytearray(b"?" * size))
        return self.taken[-1]

    def grow(self, request: Hashable, buffer: Memory, used: int, size: int, wanted: int) -> Memory:
        larger = self.take(request, size, wanted)
        larger[:used] = buffer[:used]
        self.give(request, buffer)
        return larger

    def give(self, request: Hashable, buffer: Memory) -> None:
        self.taken = [each for each in self.taken if each is not buffer]
        buffer[:] = b"!" * len(buffer)

    def overwrite(self) -> None:
        self.scratch[:] = b"!" * SCRATCH_BYTES


class Stream:
    """A connection without a socket. `stop_after`: how many frames are taken in a row before there is a wait."""

    def __init__(self, stop_after: int = 1_000_000) -> None:
        self.memory = Shared()
        self.framing = Framing(self.memory, SIZE_MAX)
        self.frames: list[bytes] = []
        self._stop_after = stop_after

    def take(self) -> None:
        """Take all whole frames, with a wait after every few."""
        while True:
            taken = [bytes(frame) for frame in itertools.islice(self.framing.frames(), self._stop_after)]
            self.framing.settle()
            self.memory.overwrite()
            self.frames += taken
            if len(taken) < self._stop_after:
                return

    def receive(self, data: bytes) -> None:
        while data:
            space = self.framing.space()
            count = min(len(space), len(data))
            space[:count] = data[:count]
            data = data[count:]
            self.framing.received(count)
            self.take()


def requests(*sizes: int) -> list[bytes]:
    return [bytes([number + 1]) * size for number, size in enumerate(sizes)]


def stream_of(frames: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


SMALL = requests(10, 11, 28, 10)
#: 32 bytes fit half of the scratch buffer, 33 do not.
MIXED = requests(10, 32, 33, 10, 200, 61, 12)


@pytest.mark.parametrize("stop_after", [1, 2, 1_000_000])
@pytest.mark.parametrize("frames", [SMALL, MIXED], ids=["small", "mixed"])
def test_every_cut_of_the_stream_gives_the_same_requests(frames: list[bytes], stop_after: int) -> None:
    data = stream_of(frames)
    for cut in range(len(data) + 1):
        stream = Stream(stop_after)
        stream.receive(data[:cut])
        stream.receive(data[cut:])
        assert stream.frames == frames, f"cut at {cut}"
        assert not stream.framing.has_leftover
        assert stream.memory.taken == []


@pytest.mark.parametrize("stop_after", [1, 1_000_000])
def test_every_pair_of_cuts_of_a_large_and_a_small_request_gives_the_same_requests(stop_after: int) -> None:
    frames = requests(40, 10)
    data = stream_of(frames)
    for first, second in itertools.combinations(range(len(data) + 1), 2):
        stream = Stream(stop_after)
        for piece in (data[:first], data[first:second], data[second:]):
            stream.receive(piece)
        assert stream.frames == frames, f"cuts at {first} and {second}"


def test_a_stream_byte_by_byte_gives_each_request_with_its_last_byte() -> None:
    stream = Stream()
    for frame in MIXED:
        data = stream_of([frame])
        before = list(stream.frames)
        for at in range(len(data) - 1):
            stream.receive(data[at : at + 1])
            assert stream.frames == before
        stream.receive(data[-1:])
        assert stream.frames == [*before, frame]


@pytest.mark.parametrize("seed", range(20))
def test_any_pieces_and_any_waits_give_the_same_requests(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    frames = requests(*(chance.choice((10, 20, 31, 32, 33, 60, 61, 300)) for _ in range(40)))
    data = stream_of(frames)
    stream = Stream(chance.randrange(1, 5))
    while data:
        count = chance.randrange(1, 90)
        stream.receive(data[:count])
        data = data[count:]
    assert stream.frames == frames
    assert stream.memory.taken == []


def test_a_receive_that_brings_nothing_loses_nothing() -> None:
    stream = Stream()
    data = stream_of(SMALL)
    stream.receive(data[:30])
    stream.framing.space()  # the socket had nothing after all
    stream.framing.settle()
    stream.memory.overwrite()
    stream.receive(data[30:])
    assert stream.frames == SMALL


def test_a_large_request_takes_memory_for_what_arrives_and_not_for_what_it_promises() -> None:
    stream = Stream()
    stream.receive(struct.pack(">i", SIZE_MAX) + b"x" * 3)
    assert sum(map(len, stream.memory.taken)) <= SIZE_MAX + 4
    stream.framing.clear()
    assert stream.memory.taken == []


@pytest.mark.parametrize("size", [-1, 0, 9, SIZE_MAX + 1, 2**31 - 1])
def test_a_size_that_no_request_has_is_refused_behind_the_requests_before_it(size: int) -> None:
    stream = Stream()
    data = stream_of(requests(10, 12)) + struct.pack(">i", size)
    space = stream.framing.space()
    space[: len(data)] = data
    stream.framing.received(len(data))
    frames = stream.framing.frames()
    assert [bytes(next(frames)), bytes(next(frames))] == requests(10, 12)
    with pytest.raises(InvalidRequestError):
        next(frames)


def test_requests_of_another_protocol_are_named() -> None:
    for begin, name in ((b"GET / HTTP/1.1\r\n", "HTTP"), (b"\x16\x03\x01\x02\x00\x01", "TLS")):
        stream = Stream()
        with pytest.raises(InvalidRequestError, match=name):
            stream.receive(begin)


def test_no_receive_takes_more_than_its_share_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is copied at once, into memory that is touched first, has a bound whatever the request is."""
    monkeypatch.setattr(framing, "_RECEIVE_BYTES_MAX", 100)
    stream = Stream()
    sent = requests(SIZE_MAX)
    stream.receive(struct.pack(">i", SIZE_MAX) + sent[0][:200])
    assert len(stream.framing.space()) <= 100
    stream.receive(sent[0][200:])
    assert stream.frames == sent
