"""How a client of OAUTHBEARER gets its token: Kafka's properties and options of JAAS (KIP-768, KIP-1139).

`OAuthBearerLoginCallbackHandler` gets it from a token endpoint by client credentials, or from a file. Kafka's default
handler makes an unsigned one, for developers; this project's broker refuses those.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from stratalog.config import jaas_module, jaas_options
from stratalog.errors import UsageError
from stratalog.util import REAL_FILESYSTEM, java_property
from stratalog.wire.client.properties import Properties
from stratalog.wire.client.tls_options import SYSTEM_TLS, Tls, read_tls

_JAVA: Final = "org.apache.kafka.common.security.oauthbearer."
_MODULE: Final = "OAuthBearerLoginModule"
_JAAS: Final = "sasl.jaas.config"
_HANDLER: Final = "sasl.login.callback.handler.class"
_HANDLERS: Final = (f"{_JAVA}OAuthBearerLoginCallbackHandler", f"{_JAVA}secured.OAuthBearerLoginCallbackHandler")
_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
_SCOPE: Final = "sasl.oauthbearer.scope"
_RETRIEVER: Final = "sasl.oauthbearer.jwt.retriever.class"
_ALLOWED: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
#: The schemes of each class; the first one is Kafka's default.
_RETRIEVERS: Final[Mapping[str, tuple[str, ...]]] = {
    f"{_JAVA}DefaultJwtRetriever": ("https", "http", "file"),
    f"{_JAVA}ClientCredentialsJwtRetriever": ("https", "http"),
    f"{_JAVA}FileJwtRetriever": ("file",),
}
#: Other classes that take part in a login, and those whose work is done here.
_CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    "sasl.login.class": (f"{_JAVA}internals.OAuthBearerRefreshingLogin",),
    "sasl.oauthbearer.jwt.validator.class": (
        *(f"{_JAVA}{name}JwtValidator" for name in ("Default", "Client", "Broker")),
    ),
}
#: Either of them makes Kafka's client sign an assertion in place of showing its secret.
_ASSERTIONS: Final = ("sasl.oauthbearer.assertion.file", "sasl.oauthbearer.assertion.claim.iss")
_UNSECURED: Final = "unsecuredLogin"
_EXTENSION: Final = re.compile(r"(?!auth$)[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_TIMEOUT_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Refresh:
    """When a token is renewed: Kafka's `sasl.login.refresh.*`."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_s: float = 60.0
    buffer_s: float = 300.0


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """Where tokens come from. Picklable; its repr shows no secret.

    Without a URL the token is unsigned and has the claims of `unsecured`. `where` names the settings in messages.
    """

    url: str | None = None
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    encodes_credentials: bool = False
    tls: Tls = SYSTEM_TLS
    connect_timeout_s: float = _TIMEOUT_MS / 1000
    read_timeout_s: float = _TIMEOUT_MS / 1000
    retry_backoff_s: float = 0.1
    retry_max_s: float = 10.0
    refresh: Refresh = Refresh()
    name_claim: str = "sub"
    scope_claim: str = "scope"
    extensions: tuple[tuple[str, str], ...] = ()
    unsecured: tuple[tuple[str, str], ...] = ()
    where: str = ""

    @property
    def file(self) -> Path | None:
        """The file that holds the token; None where an endpoint or nothing does."""
        parts = urlsplit(self.url or "")
        return Path(unquote(parts.path)) if parts.scheme == "file" else None


def read_token_login(reader: Properties) -> TokenLogin:
    """Return what the properties say. Raises UsageError, which names the property and never shows a secret."""
    jaas = _jaas(reader)
    for key, classes in _CLASSES.items():
        _refuse_other_class(reader, key, classes)
    handler = reader.text(_HANDLER)
    if handler is None:
        return _unsecured_login(reader, jaas)
    _refuse_other_class(reader, _HANDLER, _HANDLERS[:1] if handler != _HANDLERS[1] else _HANDLERS[1:])
    url = _url(reader)
    login = TokenLogin(
        url=url,
        name_claim=reader.text("sasl.oauthbearer.sub.claim.name") or "sub",
        scope_claim=reader.text("sasl.oauthbearer.scope.claim.name") or "scope",
        extensions=_extensions(reader, jaas, "extension_"),
        where=f"{reader.where}{_URL}={url}",
    )
    if login.file is not None:
        _readable(login.file, login.where)
        return login
    for key in _ASSERTIONS:
        if reader.text(key) is not None:
            raise UsageError(f"{reader.where}{key} is not supported: clients log in by {_ID} and {_SECRET}")
    return replace(
        login,
        client_id=_credential(reader, jaas, _ID, "clientId"),
        client_secret=_credential(reader, jaas, _SECRET, "clientSecret"),
        scope=(reader.text(_SCOPE) or jaas.get("scope", "")).strip(),
        encodes_credentials=(reader.text("sasl.oauthbearer.header.urlencode") or "false").lower() == "true",
        tls=_tls(reader, jaas),
        connect_timeout_s=reader.seconds("sasl.login.connect.timeout.ms", _TIMEOUT_MS),
        read_timeout_s=reader.seconds("sasl.login.read.timeout.ms", _TIMEOUT_MS),
        retry_backoff_s=reader.seconds("sasl.login.retry.backoff.ms", 100),
        retry_max_s=reader.seconds("sasl.login.retry.backoff.max.ms", 10_000),
        refresh=Refresh(
            _within(reader, "sasl.login.refresh.window.factor", 0.8, 0.5, 1),
            _within(reader, "sasl.login.refresh.window.jitter", 0.05, 0, 0.25),
            _within(reader, "sasl.login.refresh.min.period.seconds", 60, 0, 900),
            _within(reader, "sasl.login.refresh.buffer.seconds", 300, 0, 3600),
        ),
    )


def _jaas(reader: Properties) -> Mapping[str, str]:
    config = reader.text(_JAAS)
    wanted = f"{_JAVA}{_MODULE} required;"
    if config is None:
        raise UsageError(f"{reader.where}{_JAAS} is not set: OAUTHBEARER needs {wanted}")
    options = jaas_options(config)
    if options is None or jaas_module(config) != _MODULE:
        raise UsageError(f"{reader.where}{_JAAS}: expected {wanted}")
    return options


def _refuse_other_class(reader: Properties, key: str, classes: tuple[str, ...]) -> None:
    found = reader.text(key)
    if found is not None and found not in classes:
        raise UsageError(f"{reader.where}{key}={found} is not supported: expected {' or '.join(classes)}")


def _url(reader: Properties) -> str:
    """Return the URL of the tokens. As in Kafka 4, the environment has to allow it."""
    key, url = f"{reader.where}{_URL}", reader.text(_URL)
    if url is None:
        raise UsageError(f"{key} is not set: OAUTHBEARER needs the URL of tokens")
    retriever = reader.text(_RETRIEVER) or next(iter(_RETRIEVERS))
    if retriever not in _RETRIEVERS:
        raise UsageError(
            f"{reader.where}{_RETRIEVER}={retriever} is not supported: expected {' or '.join(_RETRIEVERS)}"
        )
    try:
        parts = urlsplit(url)
        is_usable = parts.port != 0 and url.isprintable() and " " not in url
    except ValueError:  # a port that is no number, brackets without an address
        raise UsageError(f"{key}: expected a URL such as https://HOST/token") from None
    if "@" in parts.netloc:
        raise UsageError(f"{key}: expected a URL without user and password, which would appear in logs")
    schemes = _RETRIEVERS[retriever]
    if not is_usable or parts.scheme not in schemes or not (parts.hostname or parts.scheme == "file"):
        expected = " or ".join(f"{scheme}:" for scheme in schemes)
        raise UsageError(f"{key}={url}: expected a URL that begins with {expected}")
    if url not in [each.strip() for each in (java_property(_ALLOWED) or "").split(",")]:
        raise UsageError(
            f"{key}={url}: the environment does not allow this URL; as in Kafka 4, set KAFKA_OPTS=-D{_ALLOWED}={url}"
        )
    return url


def _credential(reader: Properties, jaas: Mapping[str, str], key: str, option: str) -> str:
    """Return a credential by its key, else by its older option of JAAS."""
    found = (reader.text(key) or jaas.get(option, "")).strip()
    if not found:
        raise UsageError(f"{reader.where}{key} is not set, nor is {option} in {_JAAS}: the token endpoint asks for it")
    return found


def _tls(reader: Properties, jaas: Mapping[str, str]) -> Tls:
    options = {f"kafka.{name}": value for name, value in jaas.items() if name.startswith("ssl.")}
    return read_tls(Properties(options, f"{reader.where}{_JAAS}: "))


def _within(reader: Properties, key: str, default: float, low: float, high: float) -> float:
    found = reader.number(key, default)
    if not low <= found <= high:
        raise UsageError(f"{reader.where}{key}={found:g}: expected {low:g} to {high:g}")
    return found


def _extensions(reader: Properties, jaas: Mapping[str, str], prefix: str) -> tuple[tuple[str, str], ...]:
    """Return the further fields of the first message, which some brokers look at."""
    found = {name.removeprefix(prefix): value for name, value in jaas.items() if name.startswith(prefix)}
    for name, value in found.items():
        if not (_EXTENSION.fullmatch(name) and _EXTENSION_VALUE.fullmatch(value)):
            raise UsageError(f"{reader.where}{_JAAS}: {prefix}{name}: expected letters, and a value of printable ASCII")
    return tuple(found.items())


def _unsecured_login(reader: Properties, jaas: Mapping[str, str]) -> TokenLogin:
    """Return the login of Kafka's default handler."""
    options = {name: value for name, value in jaas.items() if name.startswith(_UNSECURED)}
    name_claim = options.get(f"{_UNSECURED}PrincipalClaimName", "sub")
    if f"{_UNSECURED}StringClaim_{name_claim}" not in options:
        raise UsageError(
            f"{reader.where}{_HANDLER} is not set: OAUTHBEARER gets its token by {_HANDLERS[0]}, or, unsigned, by"
            f" {_UNSECURED}StringClaim_{name_claim} in {_JAAS}"
        )
    lifetime = options.get(f"{_UNSECURED}LifetimeSeconds", "3600")
    if not lifetime.isdecimal() or not int(lifetime):
        raise UsageError(f"{reader.where}{_JAAS}: {_UNSECURED}LifetimeSeconds={lifetime}: expected seconds")
    for name, value in options.items():
        if name.startswith(f"{_UNSECURED}NumberClaim_") and not re.fullmatch(r"-?\d+(\.\d+)?", value):
            raise UsageError(f"{reader.where}{_JAAS}: {name}={value}: expected a number")
        if name.partition("Claim_")[2] in ("iat", "exp"):
            raise UsageError(f"{reader.where}{_JAAS}: {name}: the times of a token are set by its lifetime")
    return TokenLogin(
        name_claim=name_claim,
        scope_claim=options.get(f"{_UNSECURED}ScopeClaimName", "scope"),
        extensions=_extensions(reader, jaas, f"{_UNSECURED}Extension_"),
        unsecured=tuple((name.removeprefix(_UNSECURED), value) for name, value in options.items()),
        where=f"{reader.where}{_JAAS}",
    )


def _readable(path: Path, where: str) -> None:
    try:
        REAL_FILESYSTEM.read_bytes(path)
    except OSError as error:
        raise UsageError(f"{where}: cannot be read: {error.strerror or error}") from None
