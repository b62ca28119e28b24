"""Conversations of real clients, cut at every byte and with each byte flipped; random frames; half-open connections.

Invariant: the next good client is answered, its record is in the log once, no connection and no error of our own is
left, and memory comes back.
"""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.broker.test_torture_of_the_wire import assert_serves, connect, end, open_connections, own_errors, reset
from tests.support.waiting import wait_until

from stratalog.broker.server import acceptor
from stratalog.broker.server.server import Broker

CONVERSATIONS = sorted((Path(__file__).parents[1] / "golden" / "conversations").glob("*.bin"))
SAMPLE = 10
RESIDENT_GROWTH_MAX = 64 << 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    config = {"socket.request.max.bytes": 100_000, "group.initial.rebalance.delay.ms": 0, "log.retention.ms": -1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(acceptor, "_SWEEP_S_MAX", 0.1)  # how soon it sees that a client has gone silently
        yield from serve(tmp_path_factory.mktemp("data"), config)


def serve(directory: Path, config: Mapping[str, object]) -> Iterator[Broker]:
    with Broker(data_dir=directory, config=config) as broker:
        for topic in ("orders", "good"):
            broker.services.topics.create(topic, 1)
        yield broker


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def damage(broker: Broker, conversation: bytes, position: int, chance: random.Random) -> None:
    """Two clients: one that goes at this byte, politely or not, and one that gets this byte wrong."""
    sock = connect(broker)
    sock.sendall(conversation[:position])
    (end if chance.randrange(2) else reset)(sock)
    flipped = bytearray(conversation)
    flipped[position] ^= chance.choice((0xFF, 0x80, 0x01))
    sock = connect(broker)
    try:
        sock.sendall(flipped)
    except OSError:  # closed by the broker already
        sock.close()
    else:
        (end if chance.randrange(8) == 0 else reset)(sock)


def assert_well(broker: Broker, caplog: pytest.LogCaptureFixture, seed: int) -> None:
    assert_serves(broker)
    wait_until(lambda: open_connections() == 0, "the connections to go")
    assert own_errors(caplog) == [], f"seed {seed}"


def test_there_are_conversations_of_three_clients() -> None:
    names = {path.name.partition("-")[0] for path in CONVERSATIONS}
    assert names == {"librdkafka", "aiokafka", "java"}
    assert len(CONVERSATIONS) >= 20


def test_conversations_cut_or_flipped_anywhere_harm_no_other_client(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    seed = 11
    chance = random.Random(seed)
    for path in CONVERSATIONS:
        conversation = path.read_bytes()
        for position in chance.sample(range(len(conversation)), SAMPLE):
            damage(broker, conversation, position, chance)
        assert_serves(broker)
    assert_well(broker, caplog, seed)


@pytest.mark.soak
@pytest.mark.parametrize("path", CONVERSATIONS, ids=lambda path: path.stem)
def test_a_conversation_cut_and_flipped_at_every_byte_harms_no_other_client(
    broker: Broker, caplog: pytest.LogCaptureFixture, path: Path
) -> None:
    seed = 12
    chance = random.Random(seed)
    conversation = path.read_bytes()
    before = resident_bytes()
    for position in range(len(conversation)):
        damage(broker, conversation, position, chance)
    assert_well(broker, caplog, seed)
    gc.collect()
    assert resident_bytes() < before + RESIDENT_GROWTH_MAX


@pytest.mark.soak
def test_conversations_spliced_at_random_harm_no_other_client(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    seed = int(os.environ.get("STRATALOG_SEED", "13"))
    chance = random.Random(seed)
    conversations = [path.read_bytes() for path in CONVERSATIONS]
    before = resident_bytes()
    for _ in range(10_000):
        first, second = chance.choices(conversations, k=2)
        spliced = bytearray(first[: chance.randrange(len(first))] + second[chance.randrange(len(second)) :])
        for _ in range(chance.randrange(4)):
            spliced[chance.randrange(len(spliced))] = chance.randrange(256)
        sock = connect(broker)
        try:
            sock.sendall(spliced)
        except OSError:
            sock.close()
        else:
            (end if chance.randrange(20) == 0 else reset)(sock)
    assert_well(broker, caplog, seed)
    gc.collect()
    assert resident_bytes() < before + RESIDENT_GROWTH_MAX


def test_half_open_connections_take_nothing_from_others(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """Said all that they wanted, read nothing, and gone: the other half stays open for a while."""
    socks = []
    for path in CONVERSATIONS * 3:
        sock = connect(broker)
        sock.sendall(path.read_bytes()[:-1])
        socks.append(sock)
    assert_serves(broker)
    for sock in socks:
        reset(sock)
    assert_well(broker, caplog, 0)


def test_a_reset_right_behind_bytes_leaves_no_connection(broker: Broker) -> None:
    """The event loop tells of both at once, and of the reset never again."""
    conversation = CONVERSATIONS[0].read_bytes()
    for _ in range(50):
        sock = connect(broker)
        sock.sendall(conversation[:-1])
        reset(sock)
    wait_until(lambda: open_connections() == 0, "the connections to go")
