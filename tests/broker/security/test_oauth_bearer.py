"""OAUTHBEARER: a token that the right key signed lets its user in until it ends; every other one is refused."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.support.reference_kafka import ReferenceKafka, free_port
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.errors import InvalidConfigError
from stratalog.wire import ApiKey

jwt = pytest.importorskip("jwt", reason="pip install 'stratalog[security]'")


class Issuer:
    """Signs tokens, and writes its public keys into a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys: dict[str, rsa.RSAPrivateKey] = {}
        self.add_key("first")

    def add_key(self, name: str) -> None:
        self.keys[name] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        found = []
        for key_id, key in self.keys.items():
            public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
            found.append({**public, "kid": key_id, "use": "sig"})
        self.path.write_text(json.dumps({"keys": found}))

    def token(self, key: str = "first", **claims: Any) -> str:
        """Return a signed token. A claim that is None is left out."""
        now = int(time.time())
        body = {"sub": "alice", "iss": "us", "aud": ["kafka"], "iat": now, "exp": now + 600, **claims}
        kept = {name: value for name, value in body.items() if value is not None}
        return str(jwt.encode(kept, self.keys[key], "RS256", headers={"kid": key}))


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "keys.json")


def config_of(issuer: Issuer, **more: str) -> dict[str, object]:
    return {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{free_port()}",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.path.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka,other",
        "sasl.oauthbearer.expected.issuer": "us",
        "connection.failed.authentication.delay.ms": "0",
        **more,
    }


def authenticate(broker: Broker | ReferenceKafka, token: str, head: str = "n,,") -> Any:
    """The last answer to a token."""
    with Wire(broker.bootstrap_servers) as wire:
        assert wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER").error_code == 0
        first = f"{head}\x01auth=Bearer {token}\x01\x01".encode()
        answer = wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=first)
        if bytes(answer.auth_bytes):
            assert json.loads(bytes(answer.auth_bytes)) == {"status": "invalid_token"}
            answer = wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\x01")
        return answer


def test_librdkafka_comes_in_by_a_token(tmp_path: Path, issuer: Issuer) -> None:
    with Broker(tmp_path / "data", config=config_of(issuer)) as broker:

        def client(token: str) -> AdminClient:
            return AdminClient(
                {
                    "bootstrap.servers": broker.bootstrap_servers,
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "OAUTHBEARER",
                    "oauth_cb": lambda _: (token, time.time() + 600),
                    "log_level": 0,
                }
            )

        good = client(issuer.token())
        good.poll(1)
        assert good.list_topics(timeout=30).brokers
        bad = client(issuer.token(iss="them"))
        bad.poll(1)
        with pytest.raises(KafkaException):
            bad.list_topics(timeout=1)


def test_a_token_counts_by_its_claims_and_its_session_ends_with_it(tmp_path: Path, issuer: Issuer) -> None:
    with Broker(tmp_path / "data", config=config_of(issuer)) as broker:
        answer = authenticate(broker, issuer.token())
        assert answer.error_code == 0
        assert 590 < answer.session_lifetime.total_seconds() <= 600
        assert authenticate(broker, issuer.token(), "n,a=alice,").error_code == 0
        assert authenticate(broker, issuer.token(), "n,a=bob,").error_code == 58
        stranger = Issuer(tmp_path / "strangers.json")
        none = str(jwt.encode({"sub": "alice", "exp": time.time() + 600}, None, "none"))
        for bad in (
            issuer.token(exp=time.time() - 31, iat=time.time() - 60),
            issuer.token(aud="elsewhere"),
            issuer.token(iss="them"),
            issuer.token(sub=None),
            issuer.token(sub=7),
            issuer.token(sub=" "),
            issuer.token(iat=None),
            issuer.token(iat=-1),
            issuer.token(iat=time.time() + 700),
            issuer.token(nbf=time.time() + 20, exp=time.time() + 10),
            issuer.token(exp=str(time.time() + 600)),
            issuer.token(scope=["a", "a"]),
            issuer.token(scope=" "),
            issuer.token(nbf=time.time() + 60),
            stranger.token(),
            none,
            issuer.token()[:-9],
            "x",
        ):
            assert authenticate(broker, bad).error_code == 58
        assert authenticate(broker, issuer.token(iat=time.time() + 60)).error_code == 0
        past = time.time() - 60
        assert (
            authenticate(broker, issuer.token(iat=past, exp=past + 55)).error_code == 0
        )  # within the clocks' difference


def test_a_new_key_is_found_and_keys_that_cannot_be_read_change_nothing(
    tmp_path: Path, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(issuer, **{"sasl.oauthbearer.jwks.endpoint.refresh.ms": "1"})
    with Broker(tmp_path / "data", config=config) as broker:
        issuer.add_key("second")
        wait_until(lambda: authenticate(broker, issuer.token("second")).error_code == 0, "the second key")
        issuer.path.write_text("{")
        wait_until(
            lambda: authenticate(broker, issuer.token()).error_code == 0 and "no keys can be read" in caplog.text,
            "the complaint",
        )
        assert authenticate(broker, issuer.token()).error_code == 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": ""}, "is not set"),
        ({"sasl.oauthbearer.expected.audience": ""}, "sasl.oauthbearer.expected.audience is not set"),
        ({"sasl.oauthbearer.expected.issuer": ""}, "sasl.oauthbearer.expected.issuer is not set"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///no/such/file"}, "no keys can be read"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://127.0.0.1/keys"}, "expected a URL"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "http://[::1/keys"}, "expected a URL"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "http://127.0.0.1:many/keys"}, "no keys can be read"),
        (
            {
                "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": "x.OAuthBearerLoginModule required "
                'unsecuredValidatorScopeClaimName="x";'
            },
            "asks for unsigned tokens",
        ),
    ],
)
def test_what_cannot_be_kept_refuses_the_start(tmp_path: Path, issuer: Issuer, more: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfigError, match=said) as raised:
        Broker(tmp_path / "data", config=config_of(issuer, **more))
    assert "\n" not in str(raised.value)


def test_tokens_for_anybody_from_anybody_count_where_that_is_allowed_by_name(tmp_path: Path, issuer: Issuer) -> None:
    config = config_of(
        issuer,
        **{
            "sasl.oauthbearer.expected.audience": "",
            "sasl.oauthbearer.allow.unverified.audience": "true",
            "sasl.oauthbearer.allow.unverified.issuer": "true",
        },
    )
    del config["sasl.oauthbearer.expected.issuer"]
    with Broker(tmp_path / "data", config=config) as broker:
        assert authenticate(broker, issuer.token(aud="elsewhere", iss="them")).error_code == 0


def test_settings_of_the_mechanism_take_precedence_as_in_kafka(tmp_path: Path, issuer: Issuer) -> None:
    prefix = "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer"
    more = {f"{prefix}.expected.audience": "narrow", f"{prefix}.sub.claim.name": "azp"}
    with Broker(tmp_path / "data", config=config_of(issuer, **more)) as broker:
        assert authenticate(broker, issuer.token(azp="billing")).error_code == 58
        assert authenticate(broker, issuer.token(aud="narrow")).error_code == 58
        assert authenticate(broker, issuer.token(aud="narrow", azp="billing"), "n,a=billing,").error_code == 0
    with pytest.raises(InvalidConfigError, match=rf"{prefix}\.clock\.skew\.seconds"):
        Broker(tmp_path / "other", config=config_of(issuer, **{f"{prefix}.clock.skew.seconds": "-1"}))


def test_keys_of_both_sides_are_no_keys(tmp_path: Path, issuer: Issuer) -> None:
    issuer.path.write_text(json.dumps({"keys": [{"kty": "oct", "kid": "first", "k": "c2VjcmV0"}]}))
    with pytest.raises(InvalidConfigError, match="expected public keys"):
        Broker(tmp_path / "data", config=config_of(issuer))
