"""Secrets are planted wherever they may be given; then everything that is written or shown is looked through.

Invariant: no planted secret is in a log, an answer, a metric, a page, the data directory, the bucket, an error or the
arguments of a process, in any of the spellings in which it could be.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.support.authority import Authority
from tests.support.reference_kafka import free_port
from tests.support.s3_server import S3Server, require_s3_server
from tests.support.waiting import wait_until

START_TIMEOUT_S = 120


@dataclass
class Shown:
    """Everything that was written or shown, by where it was."""

    texts: dict[str, bytes] = field(default_factory=dict)

    def add(self, where: str, what: object) -> None:
        self.texts[where] = self.texts.get(where, b"") + (what if isinstance(what, bytes) else str(what).encode())

    def add_files(self, where: str, root: Path) -> None:
        for path in root.rglob("*"):
            if path.is_file():
                with contextlib.suppress(FileNotFoundError):  # deleted just now
                    self.add(f"{where} {path.relative_to(root)}", path.read_bytes())

    def find(self, secrets: dict[str, str]) -> list[str]:
        return [
            f"{name} in {where}"
            for name, secret in secrets.items()
            for spelling in spellings(secret)
            for where, text in self.texts.items()
            if spelling in text
        ]


def spellings(secret: str) -> set[bytes]:
    raw = secret.encode()
    return {
        raw,
        base64.b64encode(raw).rstrip(b"="),
        base64.b64encode(b"\0me\0" + raw).rstrip(b"="),
        urllib.parse.quote(secret, safe="").encode(),
        json.dumps(secret)[1:-1].encode(),
        secret.encode("utf-16-le"),
        raw.hex().encode(),
    }


def test_the_search_finds_what_it_should() -> None:
    shown = Shown()
    shown.add("a log", "password=" + base64.b64encode(b'pla"nted').decode())
    assert shown.find({"it": 'pla"nted'}) == ["it in a log"]
    assert shown.find({"it": "other"}) == []


@dataclass
class World:
    secrets: dict[str, str]
    directory: Path
    settings: dict[str, str]
    authority: Authority
    s3: S3Server
    port: int
    web_port: int

    def start(self, name: str, **changes: str) -> subprocess.Popen[bytes]:
        config = self.directory / f"{name}.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in {**self.settings, **changes}.items()))
        config.chmod(0o600)
        command = [sys.executable, "-m", "stratalog", "serve", "-v", "--config", str(config)]
        command += [f"--web=127.0.0.1:{self.web_port}"]
        with (self.directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def client(self, **more: str) -> dict[str, object]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.pem": self.authority.pem,
            "sasl.mechanism": "PLAIN",
            "sasl.username": "me",
            "sasl.password": self.secrets["password of PLAIN"],
            "log_level": 0,
            **{name.replace("__", "."): value for name, value in more.items()},
        }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    require_s3_server()
    directory = tmp_path_factory.mktemp("secrets")
    secrets = {
        "password of PLAIN": "Planted-plain-7c1",
        "password of another user": "Planted-other-a4e",
        "password of a key store": "Planted-store-91b",
        "password of a trust store": "Planted-trust-3d0",
        "password of SCRAM": "Planted-scram-b55",
        "password of a client that is wrong": "Planted-wrong-e29",
        "secret that a client sets": "Planted-refused-16f",
        "secret of the bucket": "stratalog-test-secret",
        "token of the bucket": "Planted-session-f07",
        "password in a URL": "Planted-url-5a8",
        "secret at the token endpoint": "Planted-oauth-2c6",
        "key of segments": base64.b64encode(b"Planted-segment-key-0123456789ab").decode(),
    }
    authority = Authority()
    identity = authority.issue("broker")
    secrets["private key"] = identity.key_pem().splitlines()[1]
    key_file = directory / "segments.key"
    key_file.write_text(secrets["key of segments"] + "\n")
    port, web_port = free_port(), free_port()
    with S3Server(directory / "s3") as s3:
        settings = {
            "listeners": f"SASL_SSL://127.0.0.1:{port}",
            "log.dirs": str(directory / "data"),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(
                identity.write_pkcs12(directory / "server.p12", secrets["password of a key store"])
            ),
            "ssl.keystore.password": secrets["password of a key store"],
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(
                authority.write_pkcs12(directory / "trust.p12", secrets["password of a trust store"])
            ),
            "ssl.truststore.password": secrets["password of a trust store"],
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": (
                "org.apache.kafka.common.security.plain.PlainLoginModule required "
                f'user_me="{secrets["password of PLAIN"]}" user_you="{secrets["password of another user"]}";'
            ),
            "sasl.oauthbearer.client.credentials.client.secret": secrets["secret at the token endpoint"],
            "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.client.credentials.client.secret": secrets[
                "secret at the token endpoint"
            ],
            "group.initial.rebalance.delay.ms": "0",
            "remote.log.storage.system.enable": "true",
            "remote.log.manager.task.interval.ms": "300",
            "stratalog.remote.url": s3.url("bucket/prefix"),
            "stratalog.remote.s3.endpoint": s3.endpoint,
            "stratalog.remote.s3.access.key.id": s3.options["access_key_id"],
            "stratalog.remote.s3.secret.access.key": secrets["secret of the bucket"],
            "stratalog.remote.s3.region": "us-east-1",
            "stratalog.remote.encryption.key.file": str(key_file),
        }
        yield World(secrets, directory, settings, authority, s3, port, web_port)


def talk(world: World, shown: Shown) -> None:
    """Do what clients do, the wrong things too; keep every answer and error."""
    admin = AdminClient(world.client())
    topic = NewTopic("orders", 1, 1, config={"remote.storage.enable": "true", "segment.bytes": "1048576"})
    admin.create_topics([topic])["orders"].result(60)
    producer = Producer(world.client())
    for _ in range(40):
        producer.produce("orders", os.urandom(100_000))
    assert producer.flush(60) == 0
    wrong = Consumer(world.client(sasl__password=world.secrets["password of a client that is wrong"], group__id="g"))
    with contextlib.suppress(KafkaException):
        shown.add("a refused login", wrong.list_topics(timeout=1))
    wrong.close()
    user = UserScramCredentialUpsertion(
        "new", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), world.secrets["password of SCRAM"].encode()
    )
    admin.alter_user_scram_credentials([user])["new"].result(60)
    shown.add("users", admin.describe_user_scram_credentials(["new"])["new"].result(60))
    refused = world.secrets["secret that a client sets"]
    for kind, name, key in (
        (ConfigResource.Type.BROKER, "1", "ssl.keystore.password"),
        (ConfigResource.Type.BROKER, "1", "listener.name.sasl_ssl.plain.sasl.jaas.config"),
        (ConfigResource.Type.BROKER, "1", "stratalog.remote.s3.secret.access.key"),
        (ConfigResource.Type.TOPIC, "orders", "sasl.jaas.config"),
    ):
        entry = ConfigEntry(key, refused, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(kind, name, incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            shown.add("errors of settings", future.exception(60))
    for kind, name in ((ConfigResource.Type.BROKER, "1"), (ConfigResource.Type.TOPIC, "orders")):
        resource = ConfigResource(kind, name)
        for entry in admin.describe_configs([resource])[resource].result(60).values():
            shown.add("DescribeConfigs", (entry.name, entry.value, entry.synonyms))
    bucket = world.s3.directory
    wait_until(lambda: sum(path.stat().st_size for path in bucket.rglob("*.dat")) > 1_000_000, "segments in the bucket")


def look(world: World, process: subprocess.Popen[bytes], shown: Shown) -> None:
    """Everything that can be asked for beside the protocol."""
    shown.add("ps", Path(f"/proc/{process.pid}/cmdline").read_bytes())
    for path in ("/", "/metrics", "/health/live", "/health/ready", "/api/tier-status", "/api/topics", "/nowhere"):
        with contextlib.suppress(OSError):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{world.web_port}{path}", timeout=30) as answer:
                    shown.add(f"page {path}", answer.read())
            except urllib.error.HTTPError as error:
                shown.add(f"page {path}", error.read())
    properties = world.directory / "client.properties"
    ca = world.authority.write(world.directory / "ca.pem")
    properties.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={ca}\nsasl.jaas.config="
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="me" password="{world.secrets["password of a client that is wrong"]}";\n'
    )
    command = ["topics", "list", "--bootstrap-server", f"127.0.0.1:{world.port}", "--command-config", str(properties)]
    done = subprocess.run([sys.executable, "-m", "stratalog", *command], capture_output=True, timeout=60, check=False)
    shown.add("a command with a wrong password", done.stdout + done.stderr)
    assert done.returncode != 0


def wait_for_start(world: World, name: str, process: subprocess.Popen[bytes]) -> None:
    log = world.directory / f"{name}.log"
    until = time.monotonic() + START_TIMEOUT_S
    while b"ready " not in log.read_bytes():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.05)


def test_no_secret_is_shown_or_written(world: World) -> None:
    shown = Shown()
    process = world.start("good")
    try:
        wait_for_start(world, "good", process)
        talk(world, shown)
        look(world, process, shown)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    shown.add("the log", (world.directory / "good.log").read_bytes())
    shown.add_files("data", world.directory / "data")
    shown.add_files("bucket", world.s3.directory)
    assert any(where.startswith("page /metrics") for where in shown.texts)
    kept = Shown({"store": shown.texts["data stratalog.sqlite"]})
    assert set(kept.find(world.secrets)) <= {"secret that a client sets in store"}
    del shown.texts[
        "data stratalog.sqlite"
    ]  # keeps settings that clients give, as Kafka's metadata log does: mode 0600
    found = [each for each in shown.find(world.secrets) if "the bucket in bucket" not in each]
    assert found == []  # but for the server's own list of its accounts


@pytest.mark.soak
@pytest.mark.parametrize(
    "changes",
    [
        {"stratalog.remote.s3.endpoint": "http://me:Planted-url-5a8@127.0.0.1:1"},
        {"stratalog.remote.s3.secret.access.key": "Planted-wrong-e29"},
        {"stratalog.remote.s3.session.token": "Planted-session-f07"},
        {"ssl.keystore.password": "Planted-wrong-e29"},
        {"ssl.truststore.password": "Planted-wrong-e29"},
        {"listener.name.sasl_ssl.plain.sasl.jaas.config": 'PlainLoginModule required user_me="Planted-plain-7c1'},
        {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": "https://me:Planted-url-5a8@127.0.0.1:1/keys",
            "sasl.oauthbearer.expected.audience": "a",
            "sasl.oauthbearer.expected.issuer": "b",
            "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
            ),
        },
    ],
    ids=["endpoint", "bucket-secret", "bucket-token", "key-store", "trust-store", "jaas", "jwks"],
)
def test_no_error_of_a_start_shows_a_secret(world: World, changes: dict[str, str]) -> None:
    """Whether it starts all the same, or is refused."""
    shown = Shown()
    name = "bad"
    process = world.start(name, **changes, **{"log.dirs": str(world.directory / "other")})
    log = world.directory / f"{name}.log"
    until = time.monotonic() + 8
    try:
        while process.poll() is None and time.monotonic() < until and b"ready " not in log.read_bytes():
            time.sleep(0.05)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)
    shown.add("the log", log.read_bytes())
    shown.add_files("data", world.directory / "other")
    assert shown.texts["the log"]
    assert shown.find(world.secrets) == []


def test_only_its_owner_may_change_the_data_directory_and_read_what_is_secret_there(world: World) -> None:
    for path in (world.directory / "data").rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert not mode & 0o022, f"{path} may be written by others: {mode:o}"
        if path.name.startswith("stratalog.sqlite"):
            assert not mode & 0o077, f"{path} may be read by others: {mode:o}"
