"""The properties of a client's login by OAUTHBEARER: Kafka's, each refused in one line that names it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from stratalog.errors import UsageError
from stratalog.wire.client import ConnectionOptions
from stratalog.wire.client.token_login import TokenLogin

JAVA = "org.apache.kafka.common.security.oauthbearer"
URL = "https://id.example/token"
KEY = "sasl.oauthbearer.token.endpoint.url"
CREDENTIALS = "sasl.oauthbearer.client.credentials.client"
JAAS = f"{JAVA}.OAuthBearerLoginModule required"
SECRET = "Planted-3f1"
BASE = {
    "sasl.login.callback.handler.class": f"{JAVA}.OAuthBearerLoginCallbackHandler",
    KEY: URL,
    "sasl.jaas.config": f"{JAAS};",
    f"{CREDENTIALS}.id": "billing",
    f"{CREDENTIALS}.secret": SECRET,
}


@pytest.fixture(autouse=True)
def _allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_OPTS", f"-Xmx1g -Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=http://other,{URL}")
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)


def login(**changes: str | None) -> TokenLogin:
    values = BASE | {name: value for name, value in changes.items() if value is not None}
    kept = {name: value for name, value in values.items() if changes.get(name, value) is not None}
    options = {f"kafka.{name}": value for name, value in kept.items()}
    fixed = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "bootstrap.servers": "h:1"}
    sasl = ConnectionOptions.of(options | {f"kafka.{name}": value for name, value in fixed.items()}).sasl
    assert sasl is not None
    assert sasl.login is not None
    return sasl.login


def test_credentials_are_kafkas_keys_or_its_older_options_of_jaas() -> None:
    by_key = login(**{"sasl.oauthbearer.scope": "kafka"})
    assert (by_key.client_id, by_key.client_secret, by_key.scope) == ("billing", SECRET, "kafka")
    older = {"sasl.jaas.config": f'{JAAS} clientId="b" clientSecret="s" scope="c" extension_traceId="7";'}
    assert login(**older).client_id == "billing"  # a key precedes an option
    by_jaas = login(**older, **{f"{CREDENTIALS}.id": None, f"{CREDENTIALS}.secret": None})
    assert (by_jaas.client_id, by_jaas.client_secret, by_jaas.scope) == ("b", "s", "c")
    assert by_jaas.extensions == (("traceId", "7"),)
    assert pickle.loads(pickle.dumps(by_jaas)) == by_jaas


def test_a_file_is_a_source_of_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    url = file.as_uri()
    monkeypatch.setenv("KAFKA_OPTS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}")
    with pytest.raises(UsageError, match=f"{KEY}={url}: cannot be read: No such file"):
        login(**{KEY: url})
    file.write_text("x")
    assert login(**{KEY: url, f"{CREDENTIALS}.id": None}).file == file
    by_class = {"sasl.oauthbearer.jwt.retriever.class": f"{JAVA}.FileJwtRetriever"}
    assert login(**{KEY: url}, **by_class).file == file
    with pytest.raises(UsageError, match="expected a URL that begins with file:"):
        login(**by_class)


def test_an_unsigned_token_is_for_kafkas_default_handler() -> None:
    unsigned = {"sasl.jaas.config": f'{JAAS} unsecuredLoginStringClaim_sub="me";'}
    assert login(**unsigned, **{"sasl.login.callback.handler.class": None}).url is None
    assert login(**unsigned).url == URL


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sasl.jaas.config": None}, "sasl.jaas.config is not set: OAUTHBEARER needs"),
        ({"sasl.jaas.config": "x.PlainLoginModule required;"}, "sasl.jaas.config: expected"),
        ({"sasl.login.callback.handler.class": None}, "sasl.login.callback.handler.class is not set"),
        ({"sasl.login.callback.handler.class": "io.x.Y"}, "sasl.login.callback.handler.class=io.x.Y is not supported"),
        ({"sasl.login.class": "io.x.Y"}, "sasl.login.class=io.x.Y is not supported"),
        ({"sasl.oauthbearer.jwt.validator.class": "io.x.Y"}, "jwt.validator.class=io.x.Y is not supported"),
        (
            {"sasl.oauthbearer.jwt.retriever.class": f"{JAVA}.JwtBearerJwtRetriever"},
            "jwt.retriever.class=.*JwtBearerJwtRetriever is not supported",
        ),
        ({KEY: None}, f"{KEY} is not set"),
        ({KEY: "ftp://id.example/token"}, f"{KEY}=ftp://id.example/token: expected a URL that begins with https:"),
        ({KEY: "https:///token"}, "expected a URL that begins with https:"),
        ({KEY: "https://id.example:x/token"}, "expected a URL such as https://HOST/token"),
        ({KEY: f"https://me:{SECRET}@id.example"}, f"{KEY}: expected a URL without user and password"),
        ({KEY: f"{URL}/2"}, f"{KEY}={URL}/2: the environment does not allow this URL.*KAFKA_OPTS=-D"),
        ({f"{CREDENTIALS}.id": None}, f"{CREDENTIALS}.id is not set, nor is clientId in sasl.jaas.config"),
        ({f"{CREDENTIALS}.secret": " "}, f"{CREDENTIALS}.secret is not set"),
        ({"sasl.oauthbearer.assertion.file": "/f"}, "sasl.oauthbearer.assertion.file is not supported"),
        ({"sasl.login.refresh.window.factor": "2"}, "sasl.login.refresh.window.factor=2: expected 0.5 to 1"),
        ({"sasl.login.refresh.window.factor": "x"}, "sasl.login.refresh.window.factor=x: expected a number"),
        ({"sasl.login.refresh.buffer.seconds": "3601"}, "sasl.login.refresh.buffer.seconds=3601: expected 0 to 3600"),
        ({"sasl.login.read.timeout.ms": "-1"}, "sasl.login.read.timeout.ms=-1: expected milliseconds"),
        ({"sasl.jaas.config": f'{JAAS} extension_auth="x";'}, "sasl.jaas.config: extension_auth: expected letters"),
        ({"sasl.jaas.config": f'{JAAS} ssl.truststore.type="JKS";'}, "sasl.jaas.config: ssl.truststore.type=JKS"),
        (
            {
                "sasl.login.callback.handler.class": None,
                "sasl.jaas.config": f'{JAAS} unsecuredLoginStringClaim_sub="a" unsecuredLoginLifetimeSeconds="-1";',
            },
            "unsecuredLoginLifetimeSeconds=-1: expected seconds",
        ),
        (
            {
                "sasl.login.callback.handler.class": None,
                "sasl.jaas.config": f'{JAAS} unsecuredLoginStringClaim_sub="a" unsecuredLoginNumberClaim_n="x";',
            },
            "unsecuredLoginNumberClaim_n=x: expected a number",
        ),
        (
            {
                "sasl.login.callback.handler.class": None,
                "sasl.jaas.config": f'{JAAS} unsecuredLoginStringClaim_sub="a" unsecuredLoginNumberClaim_exp="7";',
            },
            "unsecuredLoginNumberClaim_exp: the times of a token",
        ),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_property(changes: dict[str, str | None], said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        login(**changes)
    assert str(raised.value).startswith("option kafka.")
    assert "\n" not in str(raised.value)
    assert SECRET not in str(raised.value)


def test_no_url_is_allowed_unless_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_OPTS", "")
    with pytest.raises(UsageError, match="the environment does not allow this URL"):
        login()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={URL}")
    assert login().url == URL
    monkeypatch.setenv("KAFKA_OPTS", "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=")
    with pytest.raises(UsageError, match="the environment does not allow this URL"):
        login()
