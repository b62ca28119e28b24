"""The TLS of one connection: messages that are no data do not hold the thread, and nothing is lost on the way."""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from tests.support.authority import Authority

from stratalog.broker.server.tls_stream import TlsStream

_AES_256 = "TLS_AES_256_GCM_SHA384"
#: More than OpenSSL gets at once: 27 bytes each.
_UPDATES = 3000


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def context(authority: Authority, tmp_path: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(authority.issue("broker").write_pem(tmp_path / "broker.pem"))
    return made


class Both:
    """The two ends of a connection whose handshake has ended."""

    def __init__(self, context: ssl.SSLContext, client: ssl.SSLContext) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.sock = ours
        self.stream = TlsStream(ours, context)
        self.client = client.wrap_socket(theirs, server_hostname="localhost", do_handshake_on_connect=False)
        self.client.settimeout(30)
        shaking = threading.Thread(target=self.client.do_handshake)
        shaking.start()
        while True:
            try:
                self.stream.shake_hands()
                break
            except BlockingIOError:
                self.wait_to_read()
        shaking.join(30)

    def wait_to_read(self) -> None:
        assert select.select([self.sock], [], [], 30)[0]

    def close(self) -> None:
        self.sock.close()
        self.client.close()


@pytest.fixture
def client(authority: Authority, tmp_path: Path) -> ssl.SSLContext:
    made = ssl.create_default_context(cadata=authority.pem)
    made.keylog_filename = str(tmp_path / "secrets")
    return made


@pytest.fixture
def both(context: ssl.SSLContext, client: ssl.SSLContext) -> Iterator[Both]:
    with closing(Both(context, client)) as made:
        yield made


def received(both: Both, count: int) -> bytes:
    """The next bytes, whatever the pieces that they come in."""
    space, found = memoryview(bytearray(count)), b""
    while len(found) < count:
        try:
            size = both.stream.receive_into(space[: count - len(found)])
        except BlockingIOError:
            both.wait_to_read()
            continue
        assert size
        found += bytes(space[:size])
    return found


class Writer:
    """Writes records of TLS 1.3 as the client would: a client of Python can ask for no new keys."""

    def __init__(self, secrets: str) -> None:
        lines = dict(line.rsplit(" ", 1) for line in secrets.splitlines() if line[0] != "#")
        self._secret = bytes.fromhex(next(value for name, value in lines.items() if name.startswith("CLIENT_TRAFFIC")))
        self._number = 0

    def _expanded(self, label: bytes, length: int) -> bytes:
        info = struct.pack(">HB", length, 6 + len(label)) + b"tls13 " + label + b"\0"
        return HKDFExpand(hashes.SHA384(), length, info).derive(self._secret)

    def record(self, kind: int, content: bytes) -> bytes:
        head = struct.pack(">BHH", 23, 0x303, len(content) + 1 + 16)
        iv = int.from_bytes(self._expanded(b"iv", 12)) ^ self._number
        self._number += 1
        return head + AESGCM(self._expanded(b"key", 32)).encrypt(iv.to_bytes(12), content + bytes([kind]), head)

    def key_update(self, *, asks: bool) -> bytes:
        found = self.record(22, bytes([24, 0, 0, 1, asks]))
        self._secret, self._number = self._expanded(b"traffic upd", 48), 0
        return found


@pytest.mark.parametrize("asks", [False, True])
def test_updates_of_keys_are_handled_a_few_at_a_time(both: Both, tmp_path: Path, asks: bool) -> None:
    cipher = both.client.cipher()
    assert cipher is not None
    assert cipher[0] == _AES_256
    writer = Writer((tmp_path / "secrets").read_text())
    flood = b"".join(writer.key_update(asks=asks) for _ in range(_UPDATES)) + writer.record(23, b"data")
    socket.socket.sendall(both.client, flood)
    with pytest.raises(BlockingIOError):
        both.stream.receive_into(memoryview(bytearray(10)))
    left = both.sock.recv(len(flood), socket.MSG_PEEK)
    assert len(left) > len(flood) // 2
    reading = threading.Thread(target=lambda: both.client.recv(1))  # the answers to those that ask
    reading.start()
    assert received(both, 4) == b"data"
    both.stream.send(b"x")
    reading.join(30)
    assert not reading.is_alive()


def test_a_client_that_does_not_read_is_not_read_from(both: Both) -> None:
    """What waits for it stays below one piece, and is sent first, in order."""
    sent = os.urandom(4 * 1024 * 1024)
    view = memoryview(sent)
    while not both.stream.is_full:
        view = view[both.stream.send(view) :]
    with pytest.raises(BlockingIOError):
        both.stream.send(view)
    assert 0 < both.stream.kept_bytes < 128 * 1024
    both.client.sendall(b"hello")
    with pytest.raises(BlockingIOError):
        both.stream.receive_into(memoryview(bytearray(10)))
    assert not both.stream.has_received
    found = bytearray()

    def read() -> None:
        while len(found) < len(sent):
            found.extend(both.client.recv(1024 * 1024))

    reading = threading.Thread(target=read)
    reading.start()
    while view or both.stream.is_full:
        try:
            if view:
                view = view[both.stream.send(view) :]
            both.stream.drain()
        except BlockingIOError:
            assert select.select([], [both.sock], [], 30)[1]
    reading.join(30)
    assert found == sent
    assert received(both, 5) == b"hello"


def test_the_end_is_told_and_seen(both: Both) -> None:
    both.client.sendall(b"last")
    socket.socket.shutdown(both.client, socket.SHUT_WR)
    assert received(both, 4) == b"last"
    assert both.stream.receive_into(memoryview(bytearray(10))) == 0
    both.stream.end()
    assert both.client.recv(1) == b""


def test_nothing_waits_for_a_client_that_has_gone(both: Both) -> None:
    both.client.close()
    with pytest.raises(OSError):
        both.stream.send(b"x")
    assert not both.stream.is_full
    assert both.stream.kept_bytes == 0


def test_a_client_that_leaves_in_the_handshake_is_an_error(context: ssl.SSLContext) -> None:
    ours, theirs = socket.socketpair()
    with closing(ours):
        ours.setblocking(False)
        theirs.close()
        with pytest.raises(ssl.SSLError):
            TlsStream(ours, context).shake_hands()
