"""Broken conversations of every mechanism: no one comes in, nothing is thrown, and memory stays where it was."""

from __future__ import annotations

import gc
import logging
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tests.broker.security.test_oauth_bearer import Issuer, config_of as oauth_config
from tests.broker.security.test_sasl import sasl_config, serving
from tests.support.waiting import wait_until

from stratalog.broker.security import Principal
from stratalog.broker.server.acceptor import Acceptor
from stratalog.broker.server.server import Broker
from stratalog.wire import ApiKey
from stratalog.wire.client.options import Sasl
from stratalog.wire.client.sasl import dialogue

ROUNDS = 60
ASKED = 777
_ILLEGAL_STATE = 34
_RECEIVE_MAX = 524_288
_LIST_GROUPS = struct.pack(">hhihh", ApiKey.LIST_GROUPS, 0, ASKED, 1, ord("w") << 8)[:-1]
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-SHA-256 by token", "OAUTHBEARER")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    issuer = Issuer(tmp_path / "keys.json")
    listeners = sasl_config()["listeners"]
    config = {**oauth_config(issuer), **sasl_config(), "listeners": listeners, "delegation.token.secret.key": "s"}
    config["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
    config["sasl.server.max.receive.size"] = _RECEIVE_MAX
    with serving(tmp_path, config) as broker:
        yield broker


class Talk:
    """A client that speaks a mechanism as it should, but for what the dice say and a password that is wrong."""

    def __init__(self, broker: Broker, dice: random.Random, mechanism: str, stranger: str, token_id: str) -> None:
        self._dice = dice
        self._mechanism = mechanism.partition(" ")[0]
        self._stranger = stranger
        self._has_headers = dice.random() < 0.7
        self._sent: list[bytes] = []
        #: Whether the broker waits for bytes that do not come, so that no answer can be waited for.
        self._is_lost = False
        name = token_id if "token" in mechanism else "alice"
        self._sasl = Sasl(self._mechanism, name, "wrong", by_token="token" in mechanism)
        host, port = broker.bootstrap_servers.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)

    def run(self) -> None:
        with self._socket, suppress(OSError, EOFError):
            name = self._mechanism.encode()
            head = struct.pack(">hhih", ApiKey.SASL_HANDSHAKE, int(self._has_headers), 1, -1)
            self._say(head + struct.pack(">h", len(name)) + name)
            self._converse()
            for frame in self._dice.sample(self._sent, self._dice.randrange(len(self._sent))):
                self._send(frame)  # once more, in another order
            self._send(_LIST_GROUPS)
            self._socket.shutdown(socket.SHUT_WR)
            while True:
                self._hear()

    def _converse(self) -> None:
        if self._mechanism == "OAUTHBEARER":
            self._say(self._token(b"n,,\x01auth=Bearer " + self._stranger.encode() + b"\x01\x01"))
            self._say(self._token(b"\x01"))
            return
        talk = dialogue(self._sasl)
        message = next(talk)
        with suppress(Exception):  # of a broker that is asked nonsense, the dialogue may expect anything
            while True:
                heard = self._say(self._token(message))
                message = talk.send(heard[8:] if self._has_headers else heard)

    def _token(self, message: bytes) -> bytes:
        if not self._has_headers:
            return message
        return struct.pack(">hhihi", ApiKey.SASL_AUTHENTICATE, 0, 2, -1, len(message)) + message

    def _say(self, frame: bytes) -> bytes:
        """Send a frame as the dice say, and give what comes back."""
        self._sent.append(frame)
        self._send(self._broken(frame))
        return b"" if self._is_lost else self._hear()

    def _broken(self, frame: bytes) -> bytes:
        dice, data = self._dice, bytearray(frame)
        for _ in range(dice.choice((0, 0, 1, 1, 2))):
            at = dice.randrange(len(data))
            match dice.randrange(5):
                case 0:
                    data[at] ^= 1 << dice.randrange(8)
                case 1:
                    del data[at + 1 :]
                case 2:
                    data[at:at] = dice.randbytes(dice.randrange(1, 40))
                case 3:
                    data += bytes(dice.choice((1, 1000, 100_000)))
                case _:
                    data[at : at + 4] = dice.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0"))
        return bytes(data)

    def _send(self, frame: bytes) -> None:
        size = len(frame)
        if self._dice.random() < 0.1:
            size = self._dice.choice((0, 1, 2**31 - 1, 2**32 - 1, len(frame) + 9))
            self._is_lost = True
        self._socket.sendall(struct.pack(">I", size) + frame)

    def _hear(self) -> bytes:
        size = int.from_bytes(self._exactly(4))
        answer = self._exactly(size)
        if size >= 6 and int.from_bytes(answer[:4]) == ASKED:
            assert int.from_bytes(answer[4:6]) == _ILLEGAL_STATE, "a request was answered"
        return answer

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data


def acceptor_of(broker: Broker) -> Acceptor:
    return next(each for each in gc.get_objects() if isinstance(each, Acceptor) and each.services is broker.services)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_one_comes_in_by_a_broken_conversation(
    tmp_path: Path, broker: Broker, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Frames cut, flipped, filled, repeated, in any order, with any size before them, and a wrong password."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    owner = Principal("User", "alice")
    token = broker.services.tokens.create(owner, owner, [], -1)
    stranger = Issuer(tmp_path / "strangers.json").token()
    acceptor = acceptor_of(broker)
    for _ in range(ROUNDS):
        Talk(broker, dice, mechanism, stranger, token.id).run()
        assert {str(each.peer.principal) for each in list(acceptor.connections)} <= {"User:ANONYMOUS"}
    thrown = [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]
    assert thrown == []


def test_sizes_that_are_announced_take_no_memory(broker: Broker) -> None:
    """Before it has authenticated, a client takes no more than what it sends, and that is bounded."""
    host, port = broker.bootstrap_servers.split(":")
    before = resident_bytes()
    with ExitStack() as open_:
        for _ in range(200):
            sock = open_.enter_context(socket.create_connection((host, int(port)), timeout=30))
            sock.sendall((_RECEIVE_MAX).to_bytes(4) + b"\0\x11\0\x01")
        refused = open_.enter_context(socket.create_connection((host, int(port)), timeout=30))
        refused.sendall((_RECEIVE_MAX + 1).to_bytes(4) + b"\0\x11\0\x01")
        with suppress(ConnectionError):
            assert refused.recv(1) == b""
        acceptor = acceptor_of(broker)
        wait_until(lambda: acceptor.connection_count == 200, "the others to wait")
        assert resident_bytes() - before < 32 * 1024 * 1024
