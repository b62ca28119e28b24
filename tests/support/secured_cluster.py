"""A KRaft cluster in which no one comes in without proof: TLS everywhere, users, and the StandardAuthorizer.

Brokers prove themselves at controllers and at each other either by passwords within TLS (`SASL_SSL`: PLAIN at the
controllers, SCRAM among brokers; `SCRAM`: SCRAM everywhere, KIP-900) or by certificates (`SSL`). Clients always come in
by SCRAM within TLS.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stratalog.config import STANDARD_AUTHORIZER
from tests.support.certificate import Certificate, make_certificate
from tests.support.kraft_cluster import KraftCluster

ADMIN, ADMIN_PASSWORD = "broker", "of-the-brokers"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_MECHANISM = "SCRAM-SHA-512"


class SecuredCluster:
    """`nodes` is `SASL_SSL`, `SCRAM` or `SSL`: how nodes reach each other. `config` is for brokers of either sort."""

    def __init__(self, directory: Path, nodes: str) -> None:
        self.certificate = make_certificate(directory)
        self.kafka = KraftCluster(
            directory,
            config=_settings(directory, self.certificate, nodes),
            listeners=("CLIENTS", "NODES"),
            format_options=("--add-scram", f"{_MECHANISM}=[name={ADMIN},password={ADMIN_PASSWORD}]"),
        )
        self.config = {
            **_settings(directory, self.certificate, nodes),
            "inter.broker.listener.name": "NODES",
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            "transaction.state.log.num.partitions": "3",
        }

    def client(self, user: str = ADMIN, password: str = ADMIN_PASSWORD) -> dict[str, str]:
        """Return what a client of Java needs to come in as a user, without addresses."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": _MECHANISM,
            "sasl.jaas.config": f'{_SCRAM} required username="{user}" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificate.certificate),
        }

    def librdkafka(self, user: str, password: str) -> dict[str, str]:
        """Return the same for librdkafka."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": _MECHANISM,
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": str(self.certificate.certificate),
        }


def _settings(directory: Path, certificate: Certificate, nodes: str) -> Mapping[str, str]:
    identity = directory / "identity.pem"
    identity.write_text(certificate.key.read_text() + certificate.certificate.read_text())
    login = f'username="{ADMIN}" password="{ADMIN_PASSWORD}"'
    protocol = "SSL" if nodes == "SSL" else "SASL_SSL"
    settings = {
        "listener.security.protocol.map": f"CONTROLLER:{protocol},NODES:{protocol},CLIENTS:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(identity),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate.certificate),
        "sasl.enabled.mechanisms": _MECHANISM,
        "listener.name.clients.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{ADMIN};User:CN=127.0.0.1",
    }
    if nodes == "SSL":
        return settings | {
            "listener.name.nodes.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
        }
    if nodes == "SCRAM":
        return settings | {
            "sasl.mechanism.controller.protocol": _MECHANISM,
            "sasl.mechanism.inter.broker.protocol": _MECHANISM,
            "listener.name.controller.sasl.enabled.mechanisms": _MECHANISM,
            "listener.name.controller.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required {login};",
            "listener.name.nodes.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required {login};",
        }
    return settings | {
        "sasl.mechanism.controller.protocol": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": _MECHANISM,
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": (
            f'{_PLAIN} required {login} user_{ADMIN}="{ADMIN_PASSWORD}";'
        ),
        "listener.name.nodes.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required {login};",
    }
