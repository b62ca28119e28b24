"""`stratalog tokens`: delegation tokens (KIP-48), by which programs log in for a while in somebody's name."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import typer

from stratalog.cli.completion import complete_tokens
from stratalog.cli.connection import ClusterOptions
from stratalog.cli.options import Json, PlanOnly
from stratalog.cli.out import on_terminal, print_json
from stratalog.cli.tier import span_ms, time_text
from stratalog.errors import (
    DelegationTokenAuthorizationFailedError,
    DelegationTokenDisabledError,
    DelegationTokenExpiredError,
    DelegationTokenNotAllowedError,
    DelegationTokenOwnerMismatchError,
    UsageError,
)
from stratalog.util import TableColumn, print_table
from stratalog.wire import ApiKey, read_message, response_class
from stratalog.wire.client import Cluster, RefusedError, check

_CREATE_VERSIONS = _DESCRIBE_VERSIONS = (1, 3)
_CHANGE_VERSIONS = (1, 2)
_OWNER_FROM = 3
_AS_LONG_AS_ALLOWED = _AT_ONCE = -1

#: What to do about an error of the brokers.
_HINTS = {
    DelegationTokenDisabledError.code: "the brokers have no delegation.token.secret.key",
    DelegationTokenNotAllowedError.code: "log in by a password or certificate: not in plain text, and not by a token",
    DelegationTokenOwnerMismatchError.code: "only the owner of a token and its renewers may do that",
    DelegationTokenAuthorizationFailedError.code: "in another's name needs a right: `stratalog acls add "
    "--allow-principal User:YOU --operation create-tokens --user-principal User:OWNER`",
    DelegationTokenExpiredError.code: "it has expired; make another one",
}

_COLUMNS = (
    TableColumn("token", folds=False),
    TableColumn("owner"),
    TableColumn("requester", rank=2),
    TableColumn("renewers", rank=1),
    TableColumn("issued", rank=4, folds=False),
    TableColumn("expires", folds=False),
    TableColumn("at the latest", rank=3, folds=False),
)

Principals = list[str] | None
TokenId = Annotated[
    str,
    typer.Argument(metavar="ID", help="The id of a token, as `tokens list` shows it.", autocompletion=complete_tokens),
]
Owners = Annotated[Principals, typer.Option("--owner-principal", metavar="P", help="Only of these owners: User:alice.")]
Owner = Annotated[
    str | None, typer.Option("--owner-principal", metavar="P", help="In whose name; default: in your own.")
]
Renewers = Annotated[
    Principals, typer.Option("--renewer-principal", metavar="P", help="Who else may renew and end it: User:bob.")
]
MaxLifetime = Annotated[
    str | None,
    typer.Option("--max-lifetime", metavar="SPAN", help="How long it may be renewed, as 12h; default: as allowed."),
]
RenewPeriod = Annotated[
    str | None, typer.Option("--period", metavar="SPAN", help="For how long from now, as 12h; default: as allowed.")
]
ExpiryPeriod = Annotated[
    str | None, typer.Option("--period", metavar="SPAN", help="How long from now it lives on; default: not at all.")
]
ShowHmac = Annotated[bool, typer.Option("--show-hmac", help="Show the secrets of the tokens too.")]


class _Token(NamedTuple):
    """One token as brokers describe it; `requester` is empty for brokers before Kafka 3.3."""

    id: str
    owner: str
    requester: str
    renewers: list[str]
    issued_ms: int
    expires_ms: int
    max_ms: int
    hmac: bytes


def create(
    servers: ClusterOptions,
    owner_principal: Owner = None,
    renewer_principal: Renewers = None,
    max_lifetime: MaxLifetime = None,
    dry_run: PlanOnly = False,
    json_: Json = False,
) -> int:
    """Make a token. Its id and HMAC are enough to log in, so keep what this prints secret.

    A client logs in by SCRAM with the id as username, the HMAC as password, and tokenauth="true" behind them in
    sasl.jaas.config.

    \b
    Examples:
      stratalog tokens create -b h:9093 --command-config alice.properties
      stratalog tokens create -b h:9093 --command-config alice.properties \\
        --renewer-principal User:scheduler --max-lifetime 2d
    """
    lifetime = _AS_LONG_AS_ALLOWED if max_lifetime is None else span_ms(max_lifetime, "--max-lifetime")
    if lifetime == 0:
        raise UsageError("--max-lifetime 0: a token has to last for a while, such as 12h")
    renewers = [_principal(each, "--renewer-principal") for each in renewer_principal or ()]
    owner = None if owner_principal is None else _principal(owner_principal, "--owner-principal")
    with servers.open() as connection:
        if dry_run:
            _described(connection, owners=[])
            print("The brokers would be asked for a token; nothing was made.")
            return 0
        fields: dict[str, Any] = {"renewers": renewers, "max_lifetime": lifetime}
        versions = _CREATE_VERSIONS
        if owner is not None:
            versions = (_OWNER_FROM, _OWNER_FROM)
            fields |= {"owner_principal_type": owner["principal_type"], "owner_principal_name": owner["principal_name"]}
        answer = _ask(connection, ApiKey.CREATE_DELEGATION_TOKEN, versions, "Could not make a token", fields)
    token = _Token(
        answer.token_id,
        f"{answer.principal_type}:{answer.principal_name}",
        _requester(answer),
        list(renewer_principal or ()),
        issued_ms=_ms(answer.issue_timestamp),
        expires_ms=_ms(answer.expiry_timestamp),
        max_ms=_ms(answer.max_timestamp),
        hmac=bytes(answer.hmac),
    )
    _show([token], json_=json_, with_hmac=True)
    return 0


def list_(
    servers: ClusterOptions,
    owner_principal: Owners = None,
    show_hmac: ShowHmac = False,
    json_: Json = False,
) -> int:
    """List the tokens that you own, made or may renew, and others that you may see.

    \b
    Examples:
      stratalog tokens list -b h:9093 --command-config alice.properties
      stratalog tokens list -b h:9093 --command-config alice.properties \\
        --owner-principal User:alice --json
    """
    owners = [_principal(each, "--owner-principal") for each in owner_principal or ()]
    with servers.open() as connection:
        found = _described(connection, owners or None)
    _show(found, json_=json_, with_hmac=show_hmac)
    return 0


def renew(
    servers: ClusterOptions,
    token_id: TokenId,
    period: RenewPeriod = None,
    dry_run: PlanOnly = False,
    json_: Json = False,
) -> int:
    """Let a token live on. Sessions that are open end when they would have, and are made again by clients.

    \b
    Examples:
      stratalog tokens renew k8_1Yw4dTVKGnXZ6J5zL0A -b h:9093 \\
        --command-config alice.properties --period 12h
    """
    asked = _AS_LONG_AS_ALLOWED if period is None else span_ms(period, "--period")
    if asked == 0:
        raise UsageError("--period 0: to end a token, use `stratalog tokens expire`")
    with servers.open() as connection:
        token = _one(connection, token_id)
        if not dry_run:
            fields = {"hmac": token.hmac, "renew_period": asked}
            what = f"Could not renew {token_id}"
            answer = _ask(connection, ApiKey.RENEW_DELEGATION_TOKEN, _CHANGE_VERSIONS, what, fields)
            token = token._replace(expires_ms=_ms(answer.expiry_timestamp))
    _show([token], json_=json_)
    return 0


def expire(
    servers: ClusterOptions,
    token_id: TokenId,
    period: ExpiryPeriod = None,
    dry_run: PlanOnly = False,
    json_: Json = False,
) -> int:
    """End a token, at once or after a period. Sessions that are open end when they would have.

    \b
    Examples:
      stratalog tokens expire k8_1Yw4dTVKGnXZ6J5zL0A -b h:9093 \\
        --command-config alice.properties
    """
    asked = _AT_ONCE if period is None else span_ms(period, "--period")
    with servers.open() as connection:
        token = _one(connection, token_id)
        if not dry_run:
            fields = {"hmac": token.hmac, "expiry_time_period": asked}
            what = f"Could not end {token_id}"
            answer = _ask(connection, ApiKey.EXPIRE_DELEGATION_TOKEN, _CHANGE_VERSIONS, what, fields)
            token = token._replace(expires_ms=_ms(answer.expiry_timestamp))
    _show([token], json_=json_)
    return 0


def _principal(text: str, option: str) -> dict[str, str]:
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise UsageError(f"{option} {text}: expected a principal such as User:{text.strip(':') or 'alice'}")
    return {"principal_type": kind, "principal_name": name}


# --- on the wire ------------------------------------------------------------------------------------------------------


def _ask(connection: Cluster, key: ApiKey, versions: tuple[int, int], what: str, fields: dict[str, Any]) -> Any:
    """Return the answer of an API of tokens. RefusedError says what to do."""
    client = connection.any
    version = client.version(key, versions)
    body = client.exchange(key, version, fields)
    # The code comes first in all of them. Behind an error, Kafka's times may be -1, which the classes do not take.
    _check(int.from_bytes(body[:2], signed=True), what)
    return read_message(response_class(key, version), body)[0]


def _check(code: int, what: str) -> None:
    if code in _HINTS:
        raise RefusedError(f"{what}: {_HINTS[code]}")
    check(code, None, what)


def _described(connection: Cluster, owners: list[dict[str, str]] | None) -> list[_Token]:
    answer = connection.any.call(ApiKey.DESCRIBE_DELEGATION_TOKEN, _DESCRIBE_VERSIONS, owners=owners)
    _check(int(answer.error_code), "Could not list tokens")
    found = [
        _Token(
            token.token_id,
            f"{token.principal_type}:{token.principal_name}",
            _requester(token),
            [f"{each.principal_type}:{each.principal_name}" for each in token.renewers],
            issued_ms=token.issue_timestamp,
            expires_ms=token.expiry_timestamp,
            max_ms=token.max_timestamp,
            hmac=bytes(token.hmac),
        )
        for token in answer.tokens
    ]
    return sorted(found, key=lambda token: (token.issued_ms, token.id))


def _one(connection: Cluster, token_id: str) -> _Token:
    for token in _described(connection, None):
        if token.id == token_id:
            return token
    raise RefusedError(f"there is no token {token_id} that you may see; `stratalog tokens list` has those")


def _requester(answer: Any) -> str:
    kind = getattr(answer, "token_requester_principal_type", None)
    return "" if kind is None else f"{kind}:{answer.token_requester_principal_name}"


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _show(tokens: Iterable[_Token], *, json_: bool, with_hmac: bool = False) -> None:
    if json_:
        shown = []
        for token in tokens:
            fields: dict[str, Any] = token._asdict() | {"hmac": b64encode(token.hmac).decode()}
            shown.append({name: value for name, value in fields.items() if with_hmac or name != "hmac"})
        print_json({"tokens": shown})
        return
    rows = [
        (token.id, token.owner, token.requester, ",".join(token.renewers), *map(time_text, token[4:7]))
        for token in tokens
    ]
    print_table(_COLUMNS, rows, is_terminal=on_terminal())
    if with_hmac:
        for token in tokens:
            print(f"hmac of {token.id}: {b64encode(token.hmac).decode()}")
