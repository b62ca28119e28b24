"""Certificates of a listener that AlterConfigs changes: they count for new connections at once, and after a restart."""

from __future__ import annotations

import ssl
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from cryptography import x509
from tests.broker.security.test_tls import handshake, is_answered
from tests.support.authority import Authority, Issued
from tests.support.reference_kafka import free_port
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.wire import ApiKey

BROKER = 4
PREFIX = "listener.name.outside."
LOCATION = f"{PREFIX}ssl.keystore.location"
_INVALID_REQUEST = 42


class Setting:
    """A broker with a plain listener, by which it is configured, and one with TLS."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority()
        self.first = self.authority.issue("broker")
        plain, outside = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.config = {
            "listeners": f"INSIDE://{plain},OUTSIDE://{outside}",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SSL",
            "inter.broker.listener.name": "INSIDE",
            f"{PREFIX}ssl.keystore.type": "PEM",
            LOCATION: str(self.first.write_pem(directory / "first.pem")),
        }
        self.plain = plain
        self.outside = outside

    def start(self) -> Broker:
        return Broker(self.directory / "data", config=self.config)

    def connect(self) -> ssl.SSLSocket:
        context = ssl.create_default_context(cadata=self.authority.pem)
        return handshake(type("At", (), {"bootstrap_servers": self.outside})(), context)

    def serial(self) -> int:
        with self.connect() as sock:
            der = sock.getpeercert(binary_form=True)
            assert der is not None
            return x509.load_der_x509_certificate(der).serial_number

    def alter(self, configs: Mapping[str, str | None], name: str = "1", *, dry_run: bool = False) -> tuple[int, str]:
        asked = [
            {"name": key, "config_operation": 1 if value is None else 0, "value": value}
            for key, value in configs.items()
        ]
        resource = {"resource_type": BROKER, "resource_name": name, "configs": asked}
        with Wire(self.plain) as wire:
            answer = wire.call(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=dry_run
            ).responses[0]
        return int(answer.error_code), answer.error_message or ""


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


def written(setting: Setting, issued: Issued, name: str) -> str:
    return str(issued.write_pem(setting.directory / name))


def test_another_certificate_counts_at_once_and_after_a_restart(setting: Setting) -> None:
    second = setting.authority.issue("broker")
    with setting.start(), setting.connect() as old:
        assert setting.alter({LOCATION: written(setting, second, "second.pem")}, dry_run=True) == (0, "")
        assert setting.serial() == setting.first.certificate.serial_number
        assert setting.alter({LOCATION: str(setting.directory / "second.pem")}) == (0, "")
        assert setting.serial() == second.certificate.serial_number
        assert is_answered(old)
    with setting.start():
        assert setting.serial() == second.certificate.serial_number
        assert setting.alter({LOCATION: None}) == (0, "")
        assert setting.serial() == setting.first.certificate.serial_number


def test_a_password_comes_with_its_store_and_is_shown_to_no_member(setting: Setting) -> None:
    second = setting.authority.issue("broker")
    store = second.write_pkcs12(setting.directory / "second.p12", "hush-hush")
    with setting.start(), Wire(setting.plain) as wire:
        changed = {
            LOCATION: str(store),
            f"{PREFIX}ssl.keystore.type": "PKCS12",
            f"{PREFIX}ssl.keystore.password": "hush-hush",
        }
        assert setting.alter(changed) == (0, "")
        assert setting.serial() == second.certificate.serial_number
        asked = [{"resource_type": BROKER, "resource_name": "1", "configuration_keys": None}]
        described = wire.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=asked, include_synonyms=True)
        assert "hush-hush" not in repr(described)
        mode = (setting.directory / "data" / "stratalog.sqlite").stat().st_mode
        assert stat.S_IMODE(mode) == 0o600


def test_what_cannot_be_used_is_refused_and_changes_nothing(setting: Setting) -> None:
    other = setting.authority.issue("another")
    fewer = setting.authority.issue("broker", hosts=("127.0.0.1",))
    odd = setting.directory / "odd.pem"  # which OpenSSL takes, and the library that reads names does not
    odd.write_text(other.key_pem() + other.certificate_pem.replace(" CERTIFICATE", " TRUSTED CERTIFICATE"))
    refused: list[tuple[dict[str, str | None], str, Callable[[str], bool]]] = [
        ({LOCATION: str(setting.directory / "missing.pem")}, "1", lambda said: LOCATION in said),
        ({LOCATION: written(setting, other, "other.pem")}, "1", lambda said: "DistinguishedName" in said),
        ({LOCATION: written(setting, fewer, "fewer.pem")}, "1", lambda said: "SubjectAltNames" in said),
        ({LOCATION: str(odd)}, "1", lambda said: "names of the certificate cannot be read" in said),
        ({LOCATION: written(setting, other, "other.pem")}, "", lambda said: "at default cluster level" in said),
        ({"ssl.keystore.location": "x.pem"}, "1", lambda said: "only per-listener" in said),
        ({f"{PREFIX}ssl.client.auth": "required"}, "1", lambda said: "dynamically" in said),
        ({f"{PREFIX}scram-sha-512.sasl.jaas.config": "x.M required;"}, "1", lambda said: "dynamically" in said),
    ]
    with setting.start():
        for configs, name, is_right in refused:
            code, said = setting.alter(configs, name)
            assert (code, is_right(said)) == (_INVALID_REQUEST, True), (configs, code, said)
        assert setting.serial() == setting.first.certificate.serial_number


def test_another_certificate_counts_when_the_file_of_the_current_one_is_gone(setting: Setting) -> None:
    second = setting.authority.issue("broker")
    other = setting.authority.issue("another")
    with setting.start():
        (setting.directory / "first.pem").unlink()
        code, said = setting.alter({LOCATION: written(setting, other, "other.pem")})
        assert (code, "DistinguishedName" in said) == (_INVALID_REQUEST, True), said
        assert setting.alter({LOCATION: written(setting, second, "second.pem")}) == (0, "")
        assert setting.serial() == second.certificate.serial_number


def test_what_was_set_and_is_gone_at_a_start_leaves_the_file_in_force(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    second = setting.authority.issue("broker")
    with setting.start():
        assert setting.alter({LOCATION: written(setting, second, "second.pem")}) == (0, "")
    (setting.directory / "second.pem").unlink()
    with setting.start():
        assert setting.serial() == setting.first.certificate.serial_number
    assert "TLS settings of listener OUTSIDE are ignored" in caplog.text


def test_what_the_metadata_of_a_cluster_say_counts_for_the_next_clients(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    """In a cluster, controllers write the settings, and the broker takes what is stored."""
    second = setting.authority.issue("broker")
    with setting.start() as broker, setting.connect() as old:
        settings, store = broker.services.settings, broker.services.topics.store

        def reported(location: str | None) -> int:
            store.set_broker_configs(1, {} if location is None else {LOCATION: location})
            settings.take_stored()
            return setting.serial()

        assert reported(written(setting, second, "second.pem")) == second.certificate.serial_number
        assert reported(str(setting.directory / "missing.pem")) == second.certificate.serial_number
        assert "TLS settings of listener OUTSIDE are ignored" in caplog.text
        assert reported(None) == setting.first.certificate.serial_number
        assert is_answered(old)
