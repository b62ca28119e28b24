"""Settings of listeners, TLS and SASL that cannot be kept refuse the start by one line with the key; none is dropped.

`check_listeners` is what a start does with them before it binds.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.support.authority import Authority

from stratalog.broker.server.open_listeners import check_listeners
from stratalog.config.advice import broker_advice
from stratalog.config.broker import BrokerConfig
from stratalog.config.unkept import refuse_unkept
from stratalog.errors import InvalidConfigError, UsageError

_PLAIN = "listener.name.outer.plain.sasl.jaas.config"
_USER = 'x.PlainLoginModule required user_me="hush-hush";'


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Files of keys and certificates, good and bad."""
    directory = tmp_path_factory.mktemp("stores")
    authority = Authority()
    good, other = authority.issue("broker"), authority.issue("broker")
    names = {
        name: directory / name
        for name in ("good", "other", "cut", "mixed", "none", "alone", "p12", "trust", "cut trust")
    }
    pem = good.write_pem(names["good"]).read_bytes()
    other_pem = other.write_pem(names["other"]).read_bytes()
    names["cut"].write_bytes(pem[: len(pem) // 2])
    begin = b"-----BEGIN CERTIFICATE-----"
    names["mixed"].write_bytes(pem[: pem.index(begin)] + other_pem[other_pem.index(begin) :])
    names["alone"].write_bytes(pem[pem.index(begin) :])
    names["none"].write_bytes(b"")
    good.write_pkcs12(names["p12"], "store-secret")
    authority.write(names["trust"])
    trusted = names["trust"].read_bytes()
    names["cut trust"].write_bytes(trusted + trusted[: len(trusted) // 2])
    return {name: str(path) for name, path in names.items()} | {
        "directory": str(directory),
        "missing": str(directory / "missing"),
    }


def _tls(**more: str) -> dict[str, str]:
    return {
        "listeners": "OUTER://127.0.0.1:0",
        "listener.security.protocol.map": "OUTER:SSL",
        "ssl.keystore.type": "PEM",
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def _sasl(**more: str) -> dict[str, str]:
    return {
        "listeners": "OUTER://127.0.0.1:0",
        "listener.security.protocol.map": "OUTER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "OUTER",
        "sasl.enabled.mechanisms": "PLAIN",
        _PLAIN: _USER,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def _refusal(properties: Mapping[str, str]) -> str:
    with pytest.raises(InvalidConfigError) as raised:  # to which a start adds the file
        check_listeners(BrokerConfig(properties))
    line = str(raised.value)
    assert "\n" not in line
    assert "hush" not in line
    assert "-secret" not in line
    return line


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ("missing", "No such file"),
        ("directory", "cannot be read"),
        ("none", "expected a private key"),
        ("cut", "expected a private key"),
        ("alone", "expected a private key"),
        ("mixed", "KEY_VALUES_MISMATCH"),
        ("p12", "expected a private key"),
        ("trust", "expected a private key"),
    ],
)
def test_a_key_store_that_cannot_be_used(stores: Mapping[str, str], store: str, said: str) -> None:
    line = _refusal(_tls(ssl__keystore__location=stores[store]))
    assert line.startswith(f"ssl.keystore.location={stores[store]}: ")
    assert said in line


@pytest.mark.parametrize("password", ["", "wrong-secret", " store-secret2 "])
def test_a_key_store_with_another_password(stores: Mapping[str, str], password: str) -> None:
    more = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": stores["p12"], "ssl.keystore.password": password}
    assert "ssl.keystore.password is wrong" in _refusal({**_tls(), **more})


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"ssl.keystore.type": "PEMX"}, "ssl.keystore.type=PEMX"),
        ({"ssl.keystore.type": ""}, "ssl.keystore.type="),
        ({"ssl.keystore.password": "x-secret"}, "ssl.keystore.password"),
        ({"ssl.keystore.key": "hush"}, "ssl.keystore.certificate.chain is not set"),
        ({"ssl.keystore.certificate.chain": "x", "ssl.keystore.key": "hush"}, "ssl.keystore.location="),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols=TLSv1.1"),
        ({"ssl.enabled.protocols": ""}, "ssl.enabled.protocols"),
        ({"ssl.cipher.suites": "TLS_OF_OURS"}, "ssl.cipher.suites=TLS_OF_OURS"),
        ({"ssl.client.auth": "REQUIRED"}, "ssl.client.auth"),
        ({"ssl.client.auth": ""}, "ssl.client.auth"),
        ({"ssl.client.auth": "required"}, "ssl.truststore.location is not set"),
        ({"ssl.client.auth": "requested", "ssl.truststore.location": " "}, "ssl.truststore.location is not set"),
        ({"ssl.principal.mapping.rules": "RULE:^CN=(.*$/$1/"}, "ssl.principal.mapping.rules"),
        ({"ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/X"}, "ssl.principal.mapping.rules"),
        ({"listener.name.outer.ssl.client.auth": "must"}, "listener.name.outer.ssl.client.auth"),
        ({"listener.name.outer.ssl.enabled.protocols": "SSLv3"}, "listener.name.outer.ssl.enabled.protocols=SSLv3"),
        ({"listener.name.outer.ssl.keystore.location": "/x"}, "listener.name.outer.ssl.keystore.location=/x"),
        ({"max.connections": "-1"}, "max.connections"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip"),
        ({"max.connections.per.ip.overrides": "127.0.0.1:many"}, "max.connections.per.ip.overrides"),
        ({"listener.name.outer.max.connections": "1.5"}, "listener.name.outer.max.connections"),
        ({"listener.name.outer.max.connection.creation.rate": ""}, "listener.name.outer.max.connection.creation.rate"),
        ({"queued.max.request.bytes": "10"}, "queued.max.request.bytes"),
        ({"connections.max.idle.ms": "1_000"}, "connections.max.idle.ms"),
        ({"listener.security.protocol.map": "OUTER"}, "listener OUTER"),
        ({"listener.security.protocol.map": "OUTER:SASL_TLS"}, "listener OUTER"),
        ({"listener.security.protocol.map": ""}, "listener OUTER"),
        ({"listeners": "OUTER://127.0.0.1:0,OUTER://127.0.0.1:1"}, "listeners"),
        ({"listeners": "OUTER:/127.0.0.1:0"}, "listeners"),
        ({"listeners": "OUTER://127.0.0.1:70000"}, "listeners"),
        ({"listeners": "OUTER://127.0.0.1:0\0x"}, "listeners"),
        ({"listeners": "OUTER://[::1:0"}, "listeners"),
        ({"listeners": ","}, "listeners"),
        ({"advertised.listeners": "OUTER://0.0.0.0:1"}, "advertised.listeners"),
        ({"advertised.listeners": "OUTER://x"}, "advertised.listeners"),
        ({"inter.broker.listener.name": "INNER"}, "inter.broker.listener.name"),
        ({"security.inter.broker.protocol": "TLS"}, "security.inter.broker.protocol"),
    ],
)
def test_a_setting_of_tls_or_of_a_listener(stores: Mapping[str, str], more: dict[str, str], key: str) -> None:
    assert key in _refusal({**_tls(ssl__keystore__location=stores["good"]), **more})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"ssl.truststore.location": "missing"}, "No such file"),
        ({"ssl.truststore.location": "none"}, "expected certificates in PEM"),
        ({"ssl.truststore.location": "cut trust"}, "expected certificates in PEM"),
        ({"ssl.truststore.location": "trust", "ssl.truststore.password": "x-secret"}, "not for PEM"),
        ({"ssl.truststore.location": "trust", "ssl.truststore.certificates": "x"}, "cannot be combined"),
        ({"ssl.truststore.location": "p12", "ssl.truststore.type": "PKCS12"}, "ssl.truststore.password is wrong"),
    ],
)
def test_a_trust_store_that_cannot_be_used(stores: Mapping[str, str], more: dict[str, str], said: str) -> None:
    more = {name: stores.get(value, value) for name, value in more.items()}
    properties = _tls(ssl__keystore__location=stores["good"], ssl__client__auth="required", ssl__truststore__type="PEM")
    line = _refusal({**properties, **more})
    assert line.startswith("ssl.truststore.")
    assert said in line


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "sasl.enabled.mechanisms"),
        ({"sasl.enabled.mechanisms": "PLAIN,plain"}, "sasl.enabled.mechanisms"),
        ({"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-1"}, "sasl.enabled.mechanisms"),
        ({_PLAIN: ""}, _PLAIN),
        ({_PLAIN: _USER[:-1]}, _PLAIN),
        ({_PLAIN: _USER[:-3]}, _PLAIN),
        ({_PLAIN: "x.PlainLoginModule required;"}, _PLAIN),
        ({_PLAIN: 'x.ScramLoginModule required user_me="hush";'}, _PLAIN),
        ({_PLAIN: _USER + _USER}, _PLAIN),
        ({"listener.name.outer.sasl.server.max.receive.size": "0"}, "listener.name.outer.sasl.server.max.receive.size"),
        ({"connections.max.reauth.ms": "-1"}, "connections.max.reauth.ms"),
        (
            {"listener.name.outer.plain.connections.max.reauth.ms": str(2**63)},
            "listener.name.outer.plain.connections.max.reauth.ms",
        ),
        ({"connection.failed.authentication.delay.ms": "soon"}, "connection.failed.authentication.delay.ms"),
    ],
)
def test_a_setting_of_sasl(more: dict[str, str], key: str) -> None:
    assert key in _refusal({**_sasl(), **more})


def test_the_same_settings_without_the_mistake_are_taken(stores: Mapping[str, str]) -> None:
    check_listeners(BrokerConfig(_tls(ssl__keystore__location=f" {stores['good']} ")))
    check_listeners(BrokerConfig(_sasl(sasl__enabled__mechanisms=" PLAIN , SCRAM-SHA-512 ")))


def test_settings_of_a_listener_that_there_is_not_are_named() -> None:
    """With a wrong name, a listener would be less protected than the file says, and Kafka would not say so."""
    properties = {
        **_sasl(),
        "listener.name.outre.ssl.client.auth": "required",
        "listener.name.OUTER.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.outer.max.connections": "5",
    }
    (line,) = broker_advice(BrokerConfig(properties))
    assert line.startswith(
        "listener.name.OUTER.sasl.enabled.mechanisms, listener.name.outre.ssl.client.auth: no effect"
    )
    assert "listener.name.outer.*" in line


def test_settings_of_the_way_to_other_nodes_are_in_use() -> None:
    java = "org.apache.kafka.common.security.oauthbearer"
    properties = {
        "process.roles": "broker",
        "listeners": "NODES://h:9092",
        "listener.security.protocol.map": "NODES:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
    }
    for listener in ("nodes", "controller"):
        of_mechanism = f"listener.name.{listener}.oauthbearer.sasl"
        properties |= {
            f"{of_mechanism}.jaas.config": "x",
            f"{of_mechanism}.login.callback.handler.class": f"{java}.OAuthBearerLoginCallbackHandler",
            f"{of_mechanism}.server.callback.handler.class": f"{java}.OAuthBearerValidatorCallbackHandler",
            f"{of_mechanism}.oauthbearer.client.credentials.client.secret": "hush",
        }
    assert list(broker_advice(BrokerConfig(properties))) == []
    refuse_unkept(properties)
    properties["listener.name.nodes.oauthbearer.sasl.login.callback.handler.class"] = "com.example.Handler"
    with pytest.raises(UsageError, match=r"nodes\.oauthbearer\.sasl\.login\.callback\.handler\.class asks for SASL"):
        refuse_unkept(properties)


def test_a_secret_without_effect_is_not_shown() -> None:
    key = "sasl.oauthbearer.client.credentials.client.secret"
    (line,) = broker_advice(BrokerConfig({key: "hush"}))
    assert line.startswith(f"{key}=[hidden] has no effect")
