"""Safety settings of a Kafka `server.properties` that this broker does not support: they stop the start, by one line.

A broker that is asked for TLS, SASL, an authorizer or limits and serves without them is worse than one that does not
start. A key that is not here and not this broker's is of no harm: it is named in a warning. A value that is Kafka's
default, or empty, asks for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from stratalog.config.keys import AUTHORIZER, STANDARD_AUTHORIZER
from stratalog.config.listeners import CONTROLLER_NAMES, LISTENERS, PLAINTEXT, parse_listeners
from stratalog.errors import InvalidConfigError, UsageError

_SASL = "SASL"
_ACLS = f"another authorizer than {STANDARD_AUTHORIZER}"
_POLICY = "a policy for what clients ask for"
#: Known for one mechanism of one listener; for all of them it would say nothing.
_JAAS: Final = "sasl.jaas.config"
_NOTHING: Final[frozenset[str]] = frozenset()
_DEFAULT_QUOTA = ("a default quota by a key (set it with stratalog quotas)", frozenset({str(2**63 - 1)}))

#: Key -> what it asks for, and the values that ask for nothing.
_KEYS: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    AUTHORIZER: (_ACLS, frozenset({STANDARD_AUTHORIZER})),
    "principal.builder.class": (
        "principals of its own",
        frozenset({"org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"}),
    ),
    "ssl.engine.factory.class": ("TLS by a class", _NOTHING),
    "ssl.trustmanager.algorithm": ("checks of certificates other than OpenSSL's", frozenset({"PKIX", "SunX509"})),
    "security.providers": ("security providers of Java", _NOTHING),
    "sasl.oauthbearer.jwt.validator.class": (
        "tokens checked by a class",
        # What this broker does of itself.
        frozenset(f"org.apache.kafka.common.security.oauthbearer.{name}JwtValidator" for name in ("Default", "Broker")),
    ),
    "ssl.provider": ("a provider of TLS other than OpenSSL", _NOTHING),
    "sasl.login.callback.handler.class": (
        _SASL,
        # What this broker does of itself, as a client of other nodes.
        frozenset(
            f"org.apache.kafka.common.security.oauthbearer.{package}OAuthBearerLoginCallbackHandler"
            for package in ("", "secured.")
        ),
    ),
    "sasl.server.callback.handler.class": (
        f"{_SASL} by a class",
        # What this broker does of itself.
        frozenset(
            f"org.apache.kafka.common.security.oauthbearer.{package}OAuthBearerValidatorCallbackHandler"
            for package in ("", "secured.")
        ),
    ),
    _JAAS: ("one line of JAAS for all mechanisms instead of listener.name.<name>.<mechanism>." + _JAAS, _NOTHING),
    "delegation.token.master.key": ("a secret of tokens by its old name (now: delegation.token.secret.key)", _NOTHING),
    "password.encoder.secret": ("encoded passwords", _NOTHING),
    "config.providers": ("values from config providers, which would be used literally", _NOTHING),
    "create.topic.policy.class.name": (_POLICY, _NOTHING),
    "alter.config.policy.class.name": (_POLICY, _NOTHING),
    "client.quota.callback.class": ("quotas that a class decides on", _NOTHING),
    "quota.producer.default": _DEFAULT_QUOTA,
    "quota.consumer.default": _DEFAULT_QUOTA,
}

_OF_A_LISTENER = re.compile(r"listener\.name\.([^.]+)\.(.+)")
_QUORUM = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")
_ROLES = "process.roles"


def refuse_unkept(
    properties: Mapping[str, str | None],
    source: Callable[[str], str] = lambda _key: "the configuration",
    *,
    plain_only: bool = False,
) -> None:
    """Raise UsageError, one line that names where it stands, the key and what to do, for what cannot be kept.

    `source` says where the value of a key is from; `plain_only` that one plain listener takes the place of those named.
    """
    for name, value in properties.items():
        asked = asks_for(name, value, properties)
        if asked is not None:
            raise UsageError(
                f"{source(name)}: {name} asks for {asked}, which this broker does not support; "
                f"to serve without it, remove the key, or override it with --set {name}="
            )
    _refuse_listeners(properties, source, plain_only=plain_only)
    _refuse_quorum(properties, source)


def asks_for(name: str, value: str | None, properties: Mapping[str, str | None]) -> str | None:
    """Return what a key asks for that is not supported, or None if ignoring the key does no harm."""
    text = (value or "").strip()
    if not text:
        return None
    if name in _KEYS:
        what, harmless = _KEYS[name]
        return None if text in harmless else what
    match = _OF_A_LISTENER.fullmatch(name)
    if match is None:
        return None
    controllers = {each.strip().lower() for each in (properties.get(CONTROLLER_NAMES) or "").split(",")}
    if match[1].lower() in controllers:
        return None
    if match[2] in _KEYS:
        return asks_for(match[2], value, properties)
    of_mechanism = match[2].partition(".")[2]
    return None if of_mechanism == _JAAS or of_mechanism not in _KEYS else asks_for(of_mechanism, value, properties)


def joins_cluster(properties: Mapping[str, str | None]) -> bool:
    """Return whether they are the settings of a broker of a cluster."""
    return _roles(properties) == {"broker"}


def _roles(properties: Mapping[str, str | None]) -> set[str]:
    return {role.strip() for role in (properties.get(_ROLES) or "").split(",") if role.strip()}


def _refuse_listeners(properties: Mapping[str, str | None], source: Callable[[str], str], *, plain_only: bool) -> None:
    value = properties.get(LISTENERS)
    if not value:
        return
    where = f"{source(LISTENERS)}: {LISTENERS}={value}"
    do = f"use --set {LISTENERS}=PLAINTEXT://127.0.0.1:9092"
    try:
        listeners = [found for found in parse_listeners(value, properties) if not found.is_controllers]
    except InvalidConfigError as error:
        raise InvalidConfigError(f"{source(LISTENERS)}: {error}") from error
    for listener in listeners:
        if plain_only and listener.protocol != PLAINTEXT:
            raise UsageError(
                f"{where}: {listener} asks for {listener.protocol}, but --listen opens a {PLAINTEXT} listener in its "
                f"place; leave --listen away, or {do}"
            )
    if not listeners:
        raise UsageError(f"{where}: expected a listener for clients; {do}")


def _refuse_quorum(properties: Mapping[str, str | None], source: Callable[[str], str]) -> None:
    roles = _roles(properties)
    if roles == {"controller"}:
        raise UsageError(
            f"{source(_ROLES)}: {_ROLES}=controller asks for a controller without a broker, but this is a broker "
            f"that needs none; use the file of a broker, or override it with --set {_ROLES}="
        )
    if joins_cluster(properties):
        return
    for key in _QUORUM:
        members = [member for member in (properties.get(key) or "").split(",") if member.strip()]
        if len(members) > 1:
            raise UsageError(
                f"{source(key)}: {key} names several controllers, which a broker by itself has not; to join their "
                f"cluster, set {_ROLES}=broker, to serve without them, override the key with --set {key}="
            )
