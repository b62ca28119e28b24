"""Tokens at Kafka's broker and ours: both accept the same claims, and a connection outlasts its tokens at both."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import pytest
from tests.broker.security.test_oauth_bearer import Issuer, authenticate, config_of
from tests.support.reference_kafka import ReferenceKafka, free_port, require_reference_kafka
from tests.support.token_endpoint import TokenEndpoint

from stratalog.broker.server.server import Broker
from stratalog.wire import ApiKey
from stratalog.wire.client import Client, ConnectionOptions, Sasl, SecurityProtocol
from stratalog.wire.client.token_login import Refresh, TokenLogin

pytestmark = [pytest.mark.interop, pytest.mark.soak]

_JAVA: Final = "org.apache.kafka.common.security.oauthbearer"
_SECURED: Final = "listener.name.sasl_plaintext.oauthbearer.sasl"


def variants() -> dict[str, dict[str, Any]]:
    """Return tokens' claims by what is special about them. A claim that is None is left out."""
    now = int(time.time())
    return {
        "all claims": {},
        "no iat": {"iat": None},
        "iat in an hour": {"iat": now + 3600, "exp": now + 7200},
        "iat in an hour, after exp": {"iat": now + 3600},
        "iat equals exp": {"iat": now + 600, "exp": now + 600},
        "iat long ago": {"iat": 1},
        "iat 0": {"iat": 0},
        "iat negative": {"iat": -5},
        "iat a fraction": {"iat": now - 0.5},
        "iat a text": {"iat": str(now)},
        "iat a list": {"iat": [now]},
        "no exp": {"exp": None},
        "exp a text": {"exp": str(now + 600)},
        "exp a fraction": {"exp": now + 600.5},
        "exp far": {"exp": now + 10**8},
        "expired": {"exp": now - 60, "iat": now - 120},
        "expired within the clocks' difference": {"exp": now - 5, "iat": now - 120},
        "nbf in an hour": {"nbf": now + 3600},
        "nbf soon": {"nbf": now + 5},
        "nbf after exp": {"nbf": now + 20, "exp": now + 10},
        "nbf a text": {"nbf": str(now - 10)},
        "no sub": {"sub": None},
        "sub a number": {"sub": 7},
        "sub empty": {"sub": ""},
        "sub blank": {"sub": "  "},
        "sub with blanks": {"sub": " alice "},
        "no iss": {"iss": None},
        "another iss": {"iss": "them"},
        "no aud": {"aud": None},
        "aud a text": {"aud": "kafka"},
        "another aud": {"aud": ["elsewhere"]},
        "aud a number": {"aud": 7},
        "aud one of two": {"aud": ["elsewhere", "other"]},
        "scope a text": {"scope": "a b"},
        "scope a list": {"scope": ["a", "b"]},
        "scope twice": {"scope": ["a", "a"]},
        "scope with an empty one": {"scope": ["a", ""]},
        "scope with a blank one": {"scope": [" "]},
        "scope empty": {"scope": ""},
        "scope blank": {"scope": " "},
        "scope with a number": {"scope": ["a", 7]},
        "scope twice, with blanks": {"scope": ["a", " a"]},
        "scope a number": {"scope": 7},
        "scope an object": {"scope": {"a": 1}},
        "exp true": {"exp": True},
        "jti a number": {"jti": 7},
    }


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer") / "keys.json")


@pytest.fixture(scope="module")
def brokers(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, ReferenceKafka]]:
    """Ours and Kafka's."""
    require_reference_kafka()
    directory = tmp_path_factory.mktemp("brokers")
    config = {key: str(value) for key, value in config_of(issuer).items()}
    port, controller = free_port(), f"127.0.0.1:{free_port()}"
    addresses = f"SASL_PLAINTEXT://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{free_port()}"
    of_kafka = {
        **config,
        "listeners": f"{addresses},CONTROLLER://{controller}",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@{controller}",
        "advertised.listeners": addresses,
        f"{_SECURED}.jaas.config": f"{_JAVA}.OAuthBearerLoginModule required;",
        f"{_SECURED}.server.callback.handler.class": f"{_JAVA}.OAuthBearerValidatorCallbackHandler",
    }
    options = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.path.as_uri()}"]
    kafka = ReferenceKafka(directory / "kafka", port, of_kafka, jvm_options=options)
    with kafka, Broker(directory / "data", config=dict(config)) as broker:
        yield broker, kafka


def test_each_claim_counts_as_in_kafka(brokers: tuple[Broker, ReferenceKafka], issuer: Issuer) -> None:
    broker, kafka = brokers
    differing = {}
    for what, claims in variants().items():
        token = issuer.token(**claims)
        ours, kafkas = is_accepted(broker, token), is_accepted(kafka, token)
        if ours != kafkas:
            differing[what] = f"ours {ours}, Kafka {kafkas}"
    padded = issuer.token(sub="\t alice ")
    for named in (broker, kafka):
        assert authenticate(named, padded, "n,a=alice,").error_code == 0
    assert not differing, "\n".join(f"{what}: {how}" for what, how in differing.items())


def is_accepted(broker: Broker | ReferenceKafka, token: str) -> bool:
    """Return whether a token is accepted. Kafka closes the connection at a claim of another type than it expects."""
    with suppress(ConnectionError):
        return bool(authenticate(broker, token).error_code == 0)
    return False


def test_our_clients_connection_outlasts_its_tokens(brokers: tuple[Broker, ReferenceKafka], issuer: Issuer) -> None:
    def answer() -> tuple[int, str]:
        now = int(time.time())
        return 200, json.dumps({"access_token": issuer.token(iat=now, exp=now + 10)})

    with TokenEndpoint(answer) as endpoint:
        refresh = Refresh(min_period_s=0, buffer_s=0)
        login = TokenLogin(endpoint.url, client_id="a", client_secret="b", refresh=refresh)
        sasl = Sasl("OAUTHBEARER", "", "", login=login)
        clients = []
        for each in brokers:
            host, port = each.bootstrap_servers.split(":")
            options = ConnectionOptions(((host, int(port)),), protocol=SecurityProtocol.SASL_PLAINTEXT, sasl=sasl)
            clients.append(Client(host, int(port), options))
        began = time.monotonic()
        while len(endpoint.requests) < 4 or time.monotonic() < began + 25:
            for client in clients:
                assert client.call(ApiKey.METADATA, (12, 12), topics=[]).cluster_id
            time.sleep(0.05)
        for client in clients:
            client.close()
