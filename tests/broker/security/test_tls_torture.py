"""TLS that is cut, bent, mixed with garbage or ended without a word: none of it touches another client.

Invariant: the next good client is answered over TLS, and no connection is left.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import shutil
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from tests.broker.security.test_tls import API_VERSIONS, handshake, is_answered, tls_config
from tests.support.authority import Authority
from tests.support.waiting import wait_until

from stratalog.broker.server import acceptor as acceptor_module
from stratalog.broker.server.acceptor import Acceptor
from stratalog.broker.server.server import Broker

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("tls")
    config = tls_config(directory, authority.issue("broker"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(acceptor_module, "_SWEEP_S_MAX", 0.1)
        with Broker(directory / "data", config=config) as broker:
            yield broker


@pytest.fixture(scope="module")
def acceptor(broker: Broker) -> Acceptor:
    found = [each for each in gc.get_objects() if isinstance(each, Acceptor) and each.services is broker.services]
    return found[0]


def connect(broker: Broker) -> socket.socket:
    host, port = broker.bootstrap_servers.split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def context_for(authority: Authority, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.pem)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


def assert_well(broker: Broker, acceptor: Acceptor, authority: Authority) -> None:
    with handshake(broker, context_for(authority)) as good:
        assert is_answered(good)
    wait_until(lambda: not acceptor.connections, "the end of all connections")


class Talk:
    """A handshake of which each flight of the client can be bent before it is sent."""

    def __init__(self, broker: Broker, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._client = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")
        self.sock = connect(broker)

    def flight(self) -> bytes:
        """What the client says next; its last flight carries a request too."""
        try:
            self._client.do_handshake()
        except ssl.SSLWantReadError:
            return self._outgoing.read()
        self._client.write(API_VERSIONS)
        return self._outgoing.read()

    def answered(self) -> None:
        self._incoming.write(self.sock.recv(65_536))

    def send(self, flight: int, bend: bytes | None) -> bytes:
        """Go on up to a flight and send `bend` instead of it; None: tell what it would be."""
        for _ in range(flight):
            self.sock.sendall(self.flight())
            self.answered()
        mine = self.flight()
        if bend is not None:
            with contextlib.suppress(OSError):
                self.sock.sendall(bend)
        return mine

    def leave(self, chance: random.Random) -> None:
        with contextlib.suppress(OSError):
            if chance.randrange(2):
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                self.sock.shutdown(socket.SHUT_WR)
                while self.sock.recv(65_536):
                    pass
        self.sock.close()


def bend_handshakes(broker: Broker, authority: Authority, version: ssl.TLSVersion, step: int, seed: int) -> None:
    """Cut each flight of the client, and get a byte of it wrong, at every `step`-th byte."""
    chance = random.Random(seed)
    context = context_for(authority, version)
    for flight in (0, 1):
        talk = Talk(broker, context)
        size = len(talk.send(flight, None))
        talk.leave(chance)
        for position in range(chance.randrange(step), size, step):
            for is_cut in (True, False):
                talk = Talk(broker, context)
                for _ in range(flight):
                    talk.sock.sendall(talk.flight())
                    talk.answered()
                mine = bytearray(talk.flight())
                if is_cut or position >= len(mine):
                    del mine[position:]
                else:
                    mine[position] ^= chance.choice((0xFF, 0x80, 0x01))
                with contextlib.suppress(OSError):
                    talk.sock.sendall(mine)
                talk.leave(chance)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_handshake_that_is_cut_or_bent_in_any_flight_leaves_nothing(
    broker: Broker, acceptor: Acceptor, authority: Authority, version: ssl.TLSVersion
) -> None:
    bend_handshakes(broker, authority, version, 23, 16)
    assert_well(broker, acceptor, authority)


@pytest.mark.soak
@pytest.mark.parametrize("version", VERSIONS)
def test_a_handshake_that_is_cut_or_bent_at_every_byte_leaves_nothing(
    broker: Broker, acceptor: Acceptor, authority: Authority, version: ssl.TLSVersion
) -> None:
    bend_handshakes(broker, authority, version, 1, 16)
    assert_well(broker, acceptor, authority)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_are_refused(
    broker: Broker, acceptor: Acceptor, authority: Authority, version: ssl.TLSVersion
) -> None:
    context = context_for(authority)
    context.set_ciphers("ALL:@SECLEVEL=0")  # which would allow them
    context.minimum_version = context.maximum_version = version
    with pytest.raises(ssl.SSLError):
        handshake(broker, context)
    assert_well(broker, acceptor, authority)


def test_renegotiation_is_refused(broker: Broker, acceptor: Acceptor, authority: Authority, tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl, which can ask for a renegotiation")
    ca = authority.write(tmp_path / "ca.pem")
    command = [openssl, "s_client", "-connect", broker.bootstrap_servers, "-tls1_2", "-CAfile", str(ca)]
    done = subprocess.run(command, input="R\n", capture_output=True, text=True, timeout=60, check=False)
    assert "RENEGOTIATING" in done.stdout + done.stderr
    assert "no renegotiation" in done.stderr
    assert_well(broker, acceptor, authority)


@pytest.mark.parametrize("garbage", [b"\0" * 40, b"\x16\x03\x01\x00\x05hello", b"\x17\x03\x03\x00\x20" + b"x" * 32])
@pytest.mark.parametrize("version", VERSIONS)
def test_garbage_after_the_handshake_ends_that_connection_alone(
    broker: Broker, acceptor: Acceptor, authority: Authority, version: ssl.TLSVersion, garbage: bytes
) -> None:
    with handshake(broker, context_for(authority)) as other:
        secured = handshake(broker, context_for(authority, version))
        assert is_answered(secured)
        with socket.socket(fileno=secured.detach()) as bare:
            bare.settimeout(30)
            bare.sendall(garbage)
            with contextlib.suppress(OSError):
                while bare.recv(65_536):  # until the broker has closed it
                    pass
        assert is_answered(other)
    assert_well(broker, acceptor, authority)


@pytest.mark.parametrize("begun", [b"", API_VERSIONS[:7], struct.pack(">i", 1_000_000) + bytes(300_000)])
def test_an_end_without_close_notify_leaves_nothing(
    broker: Broker, acceptor: Acceptor, authority: Authority, begun: bytes
) -> None:
    secured = handshake(broker, context_for(authority))
    assert is_answered(secured)
    secured.sendall(begun)
    with socket.socket(fileno=secured.detach()):
        pass
    assert_well(broker, acceptor, authority)


def test_nothing_is_lost_while_keys_and_trust_change_under_load(tmp_path: Path) -> None:
    """The broker's key, its certificate and the file of those whom it trusts, as fast as they are read."""
    old, new = Authority("old"), Authority("new")
    trust = tmp_path / "trust.pem"
    trust.write_text(old.pem + new.pem)
    config = tls_config(
        tmp_path,
        old.issue("broker"),
        ssl__client__auth="required",
        ssl__truststore__type="PEM",
        ssl__truststore__location=str(trust),
    )
    with Broker(tmp_path / "data", config={**config, "group.initial.rebalance.delay.ms": 0}) as broker:
        client = {"bootstrap.servers": broker.bootstrap_servers, "security.protocol": "SSL"}
        client["ssl.ca.pem"] = old.pem + new.pem
        stop = threading.Event()

        def change() -> None:
            turn = 0
            while not stop.wait(0.05):
                turn += 1
                for path, text in (
                    (tmp_path / "server.pem", None),
                    (trust, (old.pem + new.pem) if turn % 2 else (new.pem + old.pem)),
                ):
                    issued = (new if turn % 2 else old).issue("broker")
                    beside = path.with_suffix(".new")
                    beside.write_text(text if text is not None else issued.key_pem() + issued.certificate_pem)
                    os.replace(beside, path)

        thread = threading.Thread(target=change)
        thread.start()
        failed: list[object] = []
        sent = 0
        try:
            for turn in range(4):
                mine = (old if turn % 2 else new).issue(f"client-{turn}")
                keys = {"ssl.key.pem": mine.key_pem(), "ssl.certificate.pem": mine.certificate_pem}
                producer = Producer({**client, **keys, "linger.ms": 1, "enable.idempotence": True})
                for _ in range(150):
                    producer.produce(
                        "orders",
                        str(sent).encode(),
                        partition=0,
                        on_delivery=lambda error, _: failed.append(error) if error else None,
                    )
                    sent += 1
                assert producer.flush(60) == 0
        finally:
            stop.set()
            thread.join()
        assert failed == []
        mine = new.issue("consumer")
        keys = {"ssl.key.pem": mine.key_pem(), "ssl.certificate.pem": mine.certificate_pem}
        consumer = Consumer({**client, **keys, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        with closing(consumer):
            got = [message.value() for _ in range(sent) if (message := consumer.poll(30)) is not None]
        assert got == [str(number).encode() for number in range(sent)]
