"""SASL of one listener: its enabled mechanisms and their settings.

A mechanism's own settings have its name in lower case as prefix: `plain.sasl.jaas.config`,
`scram-sha-512.connections.max.reauth.ms`, `oauthbearer.sasl.oauthbearer.expected.audience`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Final

from stratalog.broker.security.oauth_bearer import OAuthBearerExchange, TokenRules
from stratalog.broker.security.plain import PlainExchange, plain_passwords
from stratalog.broker.security.sasl_exchange import SaslExchange
from stratalog.broker.security.scram import SCRAM_HASHES, Accounts, ScramExchange
from stratalog.config import BROKER_KEYS, BrokerConfig, jaas_module, jaas_options, listener_prefix
from stratalog.errors import InvalidConfigError
from stratalog.util import SYSTEM_CLOCK

MECHANISMS_KEY: Final = "sasl.enabled.mechanisms"
_REAUTH: Final = "connections.max.reauth.ms"
_JAAS: Final = "sasl.jaas.config"
_PLAIN: Final = "PLAIN"
_OAUTH: Final = "OAUTHBEARER"
_OAUTH_KEYS: Final = "sasl.oauthbearer."
_MODULES: Final = {
    _PLAIN: "PlainLoginModule",
    **dict.fromkeys(SCRAM_HASHES, "ScramLoginModule"),
    _OAUTH: "OAuthBearerLoginModule",
}

#: Creates the exchange for a client, given the lookup of SCRAM accounts.
MakeExchange = Callable[[Accounts], SaslExchange]


@dataclass(frozen=True, slots=True)
class SaslMechanism:
    """One mechanism of one listener. `reauth_ms` is the longest session; 0 means unlimited."""

    name: str
    make: MakeExchange
    reauth_ms: int


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The mechanisms by name, in the order of the setting."""

    mechanisms: Mapping[str, SaslMechanism]
    receive_bytes_max: int
    failure_delay_s: float


def sasl_settings(config: BrokerConfig, listener: str) -> SaslSettings:
    """Read SASL settings from a listener's own `config`. InvalidConfigError for invalid or unsupported ones."""
    prefix = listener_prefix(listener)
    names = config[MECHANISMS_KEY]
    if not names:
        raise InvalidConfigError(f"{MECHANISMS_KEY} is empty: listener {listener} asks for SASL")
    return SaslSettings(
        {name: _mechanism(config, prefix, name) for name in names},
        config["sasl.server.max.receive.size"],
        config["connection.failed.authentication.delay.ms"] / 1000,
    )


def plain_exchange(config: BrokerConfig, listener: str) -> SaslExchange | None:
    """Return an exchange of PLAIN, None if a listener does not have it enabled. `config` is the listener's own.

    The settings of other mechanisms are not looked at: to read their keys may take time, or fail.
    """
    if _PLAIN not in config[MECHANISMS_KEY]:
        return None
    return _maker(config, listener_prefix(listener), _PLAIN)(lambda _mechanism, _name, _is_token: None)


def _mechanism(config: BrokerConfig, prefix: str, name: str) -> SaslMechanism:
    own = _of_mechanism(config, prefix, name)
    return SaslMechanism(name, _maker(own, prefix, name), own[_REAUTH])


def _of_mechanism(config: BrokerConfig, prefix: str, name: str) -> BrokerConfig:
    """Return a listener's configuration with what is set for one mechanism. InvalidConfigError names the whole key."""
    begin = f"{name.lower()}."
    own = {key.removeprefix(begin): raw for key, raw in config.properties.items() if key.startswith(begin)}
    own = {key: raw for key, raw in own.items() if key == _REAUTH or key.startswith(_OAUTH_KEYS)}
    for key, raw in own.items():
        if key in BROKER_KEYS:
            replace(BROKER_KEYS[key], name=prefix + begin + key).parse(raw)
    return config.with_overrides(own) if own else config


def _maker(config: BrokerConfig, prefix: str, name: str) -> MakeExchange:
    if name == "GSSAPI":
        raise InvalidConfigError(
            f"{MECHANISMS_KEY}={','.join(config[MECHANISMS_KEY])}: GSSAPI (Kerberos, and Kafka's default) is not "
            "supported; enable SCRAM-SHA-512, OAUTHBEARER or PLAIN"
        )
    if name not in _MODULES:
        raise InvalidConfigError(
            f"{MECHANISMS_KEY}={','.join(config[MECHANISMS_KEY])}: {name} is not supported; expected "
            f"{', '.join(_MODULES)}"
        )
    options = _options(config, prefix, name)
    if name in SCRAM_HASHES:
        return lambda accounts: ScramExchange(name, accounts)
    if name == _OAUTH:
        rules = _token_rules(config, options)
        return lambda _accounts: OAuthBearerExchange(rules)
    passwords = plain_passwords(options)
    if not passwords:
        raise InvalidConfigError(
            f"{prefix}plain.{_JAAS} names no user: expected org.apache.kafka.common.security.plain.PlainLoginModule "
            'required user_NAME="PASSWORD";'
        )
    return lambda _accounts: PlainExchange(passwords)


def _token_rules(config: BrokerConfig, options: Mapping[str, str]) -> TokenRules:
    url_key = "sasl.oauthbearer.jwks.endpoint.url"
    unsecured = [option for option in options if option.startswith("unsecured")]
    if unsecured:
        raise InvalidConfigError(f"oauthbearer.{_JAAS}: {unsecured[0]} asks for unsigned tokens")
    if not config[url_key]:
        raise InvalidConfigError(f"{url_key} is not set: {_OAUTH} needs the keys that sign tokens")
    for claim in ("audience", "issuer"):
        expected, unverified = f"sasl.oauthbearer.expected.{claim}", f"sasl.oauthbearer.allow.unverified.{claim}"
        if not config[expected] and not config[unverified]:
            raise InvalidConfigError(
                f"{expected} is not set: tokens for others would be accepted too; set it, or {unverified}=true"
            )
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        raise InvalidConfigError(f"{MECHANISMS_KEY}: {_OAUTH} needs more libraries: pip install 'stratalog[security]'")
    from stratalog.broker.security.jwks import SigningKeys  # and HTTP, which brokers without tokens do not load

    refresh_s = config["sasl.oauthbearer.jwks.endpoint.refresh.ms"] / 1000
    return TokenRules(
        SigningKeys(config[url_key], refresh_s, url_key, SYSTEM_CLOCK.monotonic),
        config["sasl.oauthbearer.expected.audience"],
        config["sasl.oauthbearer.expected.issuer"],
        config["sasl.oauthbearer.sub.claim.name"],
        config["sasl.oauthbearer.scope.claim.name"],
        config["sasl.oauthbearer.clock.skew.seconds"],
    )


def _options(config: BrokerConfig, prefix: str, name: str) -> Mapping[str, str]:
    """Return the options of the mechanism's JAAS line; none without that line."""
    key = f"{name.lower()}.{_JAAS}"
    line = config.properties.get(key)
    if not line:
        return {}
    options = jaas_options(line)
    if options is None or jaas_module(line) != _MODULES[name]:
        raise InvalidConfigError(f"{prefix}{key}: expected a line such as ...{_MODULES[name]} required ...;")
    return options
