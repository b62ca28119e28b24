"""A full disk beside TLS: clients are let in and served, and a key store that is half written does no harm."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from tests.broker.security.test_tls import handshake, is_answered, serving, tls_config
from tests.support.authority import Authority
from tests.support.small_disk import full, small_disk
from tests.support.waiting import wait_until

from stratalog.broker.server.server import Broker


def serial(broker: Broker, context: ssl.SSLContext) -> int:
    with handshake(broker, context) as sock:
        assert is_answered(sock)
        der = sock.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


def overwrite(store: Path, pem: bytes) -> None:
    """Write it again and again, so that the room ends in the middle of one."""
    with store.open("wb", buffering=0) as file:
        while True:
            file.write(pem * 100)


def test_who_comes_in_by_tls_is_served_and_a_certificate_is_rotated_when_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority()
    first, second = authority.issue("broker"), authority.issue("broker")
    context = ssl.create_default_context(cadata=authority.pem)
    elsewhere = tmp_path / "elsewhere"
    directory = tmp_path / "disk"
    elsewhere.mkdir()
    directory.mkdir()
    pem = second.write_pem(elsewhere / "second.pem").read_bytes()
    with small_disk(directory) as disk:
        config = tls_config(disk, first)
        store = Path(str(config["ssl.keystore.location"]))
        with serving(disk, config) as broker, handshake(broker, context) as stays:
            with full(disk):
                assert serial(broker, context) == first.certificate.serial_number
                with pytest.raises(OSError, match="No space left"):
                    overwrite(store, pem)
                assert serial(broker, context) == first.certificate.serial_number
                wait_until(
                    lambda: serial(broker, context) and "cannot be used; the current ones stay" in caplog.text,
                    "the store that is half written is reported",
                )
                assert is_answered(stays)
            store.write_bytes(pem)
            wait_until(lambda: serial(broker, context) == second.certificate.serial_number, "the new one is served")
            assert is_answered(stays)
