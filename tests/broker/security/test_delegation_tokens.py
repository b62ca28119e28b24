"""Delegation tokens: made, renewed, ended, seen and used to log in as with Kafka; no secret of them is stored."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.golden.tokens.make import GOLDEN, ask_kafkas
from tests.support.reference_kafka import free_port, require_reference_kafka, tool
from tests.support.token_cases import DAY_MS, log_in, story, story_without_tokens, token_config
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.metadata import MetadataStore
from stratalog.broker.security import IssuedTokens, Principal
from stratalog.broker.server.server import Broker
from stratalog.config import BrokerConfig
from stratalog.testing.clock import ManualClock
from stratalog.wire import ApiKey
from stratalog.wire.client.options import Sasl

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")


@contextmanager
def serving(directory: Path, **more: object) -> Iterator[tuple[Broker, str, str]]:
    """Give a broker with its plain address and that for passwords."""
    plain, sasl = (f"127.0.0.1:{free_port()}" for _ in range(2))
    changed = {name.replace("__", "."): value for name, value in more.items()}
    with Broker(directory, config={**token_config(plain, sasl), **changed}) as broker:
        yield broker, plain, sasl


def test_every_answer_about_tokens_is_kafkas(tmp_path: Path) -> None:
    kafkas = json.loads(GOLDEN.read_text())
    with serving(tmp_path / "with") as (_, plain, sasl):
        assert story(plain, sasl) == kafkas["with"]
    with serving(tmp_path / "without", delegation__token__secret__key="") as (_, plain, sasl):
        assert story_without_tokens(plain, sasl) == kafkas["without"]


@pytest.mark.interop
@pytest.mark.soak
def test_the_golden_answers_are_what_kafka_says(tmp_path: Path) -> None:
    require_reference_kafka()
    assert ask_kafkas(tmp_path) == json.loads(GOLDEN.read_text())


def test_tokens_outlive_a_restart_and_no_secret_of_them_is_on_disk(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as (broker, _, _):
        token = broker.services.tokens.create(ALICE, BOB, [BOB], -1)
        secret = broker.services.tokens.hmac(token.id)
    written = b"".join(file.read_bytes() for file in (tmp_path / "data").iterdir() if file.is_file())
    assert token.id.encode() in written
    assert secret not in written
    assert b64encode(secret) not in written
    assert repr(secret) not in repr(token)
    with serving(tmp_path / "data") as (broker, _, sasl):
        assert broker.services.tokens.all() == [token]
        with Wire(sasl) as wire:
            assert log_in(wire, Sasl("SCRAM-SHA-512", token.id, b64encode(secret).decode(), True)).error_code == 0
    with serving(tmp_path / "data", delegation__token__secret__key="another") as (_, _, sasl), Wire(sasl) as wire:
        assert log_in(wire, Sasl("SCRAM-SHA-512", token.id, b64encode(secret).decode(), True)).error_code == 58


def test_what_has_expired_is_removed_and_what_was_renewed_is_not(tmp_path: Path) -> None:
    clock = ManualClock()
    store = MetadataStore.open(tmp_path)
    config = BrokerConfig.from_properties({"delegation.token.secret.key": "s"})
    tokens = IssuedTokens(store, config, clock.now_ms)
    gone, renewed, short = (tokens.create(ALICE, ALICE, [], lifetime) for lifetime in (-1, -1, 1000))
    clock.advance(1000)
    assert tokens.remove_expired() == 0
    clock.advance(1)
    assert tokens.remove_expired() == 1
    tokens.renew(tokens.hmac(renewed.id), ALICE, -1)
    clock.advance(DAY_MS - 500)
    assert tokens.remove_expired() == 1
    assert [token.id for token in tokens.all()] == [renewed.id]
    assert [tokens.account("SCRAM-SHA-256", each.id) for each in (gone, short)] == [None, None]
    assert set(store.credentials("delegation-token")) == {renewed.id}
    store.close()


def test_the_schedule_removes_expired_tokens(tmp_path: Path) -> None:
    with serving(tmp_path, delegation__token__expiry__check__interval__ms="20") as (broker, _, _):
        tokens = broker.services.tokens
        tokens.create(ALICE, ALICE, [], 1)
        wait_until(lambda: not tokens.all(), "the removal")


def test_an_expired_token_lets_no_one_do_anything(tmp_path: Path) -> None:
    with serving(tmp_path) as (broker, _, sasl), Wire(sasl) as wire:
        tokens = broker.services.tokens
        token = tokens.create(ALICE, ALICE, [], -1)
        secret = tokens.hmac(token.id)
        tokens.expire(secret, ALICE, 0)
        answer = log_in(wire, Sasl("SCRAM-SHA-256", token.id, b64encode(secret).decode(), True))
        assert (answer.error_code, answer.session_lifetime.total_seconds()) == (0, 0)
        with pytest.raises(OSError, match="closed"):
            wire.call(ApiKey.METADATA, 12, topics=[])


@pytest.mark.interop
@pytest.mark.soak
def test_javas_client_asks_for_a_token_and_logs_in_with_it(tmp_path: Path) -> None:
    require_reference_kafka()
    with serving(tmp_path / "data") as (broker, _, sasl):

        def run(command: str, module: str, mechanism: str, options: str, *args: str) -> str:
            properties = tmp_path / "client.properties"
            properties.write_text(
                f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
                f"sasl.jaas.config=org.apache.kafka.common.security.{module} required {options};\n"
            )
            connection = ("--bootstrap-server", sasl, "--command-config", str(properties))
            return tool(f"org.apache.kafka.tools.{command}", [*connection, *args])

        alice = ("plain.PlainLoginModule", "PLAIN", 'username="admin" password="admin-secret"')
        new = ("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
        said = run("DelegationTokenCommand", *alice, *new)
        (token,) = broker.services.tokens.all()
        secret = b64encode(broker.services.tokens.hmac(token.id)).decode()
        assert secret in said
        assert "User:bob" in run("DelegationTokenCommand", *alice, "--describe", "--owner-principal", "User:admin")
        by_token = (
            "scram.ScramLoginModule",
            "SCRAM-SHA-512",
            f'username="{token.id}" password="{secret}" tokenauth="true"',
        )
        run("TopicCommand", *by_token, "--create", "--topic", "orders")
        assert run("TopicCommand", *by_token, "--list").split() == ["orders"]
        run("DelegationTokenCommand", *alice, "--renew", "--hmac", secret, "--renew-time-period", "-1")
        run("DelegationTokenCommand", *alice, "--expire", "--hmac", secret, "--expiry-time-period", "-1")
        assert broker.services.tokens.all() == []
