"""Apache Kafka with a listener for each security protocol, users by each mechanism, and a certificate."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.support.certificate import Certificate, make_certificate
from tests.support.reference_kafka import ReferenceKafka, free_port, require_reference_kafka
from tests.support.waiting import wait_until

PASSWORD = 'swo"rd=fish,'
LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True)
class Secured:
    """A broker's addresses by security protocol, and its certificate."""

    address: dict[str, str]
    certificate: Certificate


def _accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as sock:
        return sock.connect_ex((host, int(port))) == 0


@contextmanager
def secured_kafka(directory: Path) -> Iterator[Secured]:
    """Run it in `directory`; skips the test where Kafka cannot run."""
    require_reference_kafka()
    certificate = make_certificate(directory)
    identity = directory / "identity.pem"
    identity.write_text(certificate.key.read_text() + certificate.certificate.read_text())
    address = {name: f"127.0.0.1:{free_port()}" for name in LISTENERS}
    controller = f"127.0.0.1:{free_port()}"
    advertised = ",".join(f"{name}://{where}" for name, where in address.items())
    plain = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'user_me="{PASSWORD.replace(chr(34), chr(92) * 2 + chr(34))}";'
    )
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    config = {
        "listeners": f"{advertised},CONTROLLER://{controller}",
        "advertised.listeners": advertised,
        "controller.quorum.voters": f"1@{controller}",
        "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in LISTENERS) + ",CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(identity),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate.certificate),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        config[f"listener.name.{listener}.plain.sasl.jaas.config"] = plain
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            config[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = scram
    users = [
        part
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for part in ("--add-scram", f"{mechanism}=[name=me,password=swordfish]")
    ]
    port = int(address["PLAINTEXT"].rpartition(":")[2])
    with ReferenceKafka(directory / "kafka", port, config, format_options=users):
        for where in address.values():  # they open one after the other
            wait_until(partial(_accepts, where), f"Kafka accepts connections at {where}")
        yield Secured(address, certificate)
    shutil.rmtree(directory, ignore_errors=True)
