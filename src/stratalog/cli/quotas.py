"""`stratalog quotas`: list, set and remove the quotas of clients. Options are those of kafka-configs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, NamedTuple

import typer

from stratalog.broker.quotas import (
    ADDRESS_QUOTAS,
    CLIENT_ID,
    CLIENT_QUOTAS,
    IP,
    USER,
    QuotaEntity,
    check_quota,
    keys_of,
)
from stratalog.cli.completion import complete_quotas, complete_users
from stratalog.cli.connection import ClusterOptions
from stratalog.cli.option_groups import OptionGroup
from stratalog.cli.options import DryRun, Json
from stratalog.cli.out import print_json
from stratalog.errors import InvalidRequestError, UsageError
from stratalog.util import print_table
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, RefusedError, check

_VERSIONS = (0, 1)
_EXACT, _DEFAULT, _SPECIFIED = range(3)
#: Shown in a table for the default of a type; no name can be empty.
_SHOWN_DEFAULT = "(default)"
_COLUMNS = (USER, CLIENT_ID, IP, "quota", "value")

User = Annotated[
    str | None,
    typer.Option("--user", metavar="NAME", help="A user, without User: in front.", autocompletion=complete_users),
]
ClientId = Annotated[str | None, typer.Option("--client-id", "--client", metavar="ID", help="A client id.")]
Address = Annotated[str | None, typer.Option("--ip", metavar="IP", help="An address, or a host.")]
UserDefaults = Annotated[bool, typer.Option("--user-defaults", help="All users without a specific quota.")]
ClientDefaults = Annotated[bool, typer.Option("--client-defaults", help="All client ids without a specific quota.")]
AddressDefaults = Annotated[bool, typer.Option("--ip-defaults", help="All addresses without a specific quota.")]
Quotas = Annotated[
    list[str] | None,
    typer.Argument(metavar="QUOTA=N..", show_default=False, autocompletion=complete_quotas,
                   help=f"{', '.join(CLIENT_QUOTAS)}; of an address {', '.join(ADDRESS_QUOTAS)}."),
]  # fmt: skip
AddConfig = Annotated[
    list[str] | None, typer.Option("--add-config", metavar="QUOTA=N,..", help="The same, as kafka-configs has it.")
]
Keys = Annotated[
    list[str] | None,
    typer.Argument(metavar="QUOTA..", show_default=False, autocompletion=complete_quotas,
                   help="Only these quotas. Default: all of the entity."),
]  # fmt: skip
DeleteConfig = Annotated[
    list[str] | None, typer.Option("--delete-config", metavar="QUOTA,..", help="The same, as kafka-configs has it.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clients(OptionGroup):
    """Whose quotas."""

    user: User = None
    client_id: ClientId = None
    ip: Address = None
    user_defaults: UserDefaults = False
    client_defaults: ClientDefaults = False
    ip_defaults: AddressDefaults = False

    def named(self) -> dict[str, str | None]:
        """Return the given names, by type; None is the default."""
        found: dict[str, str | None] = {}
        for kind, name, flag, is_default in (
            (USER, self.user, "--user-defaults", self.user_defaults),
            (CLIENT_ID, self.client_id, "--client-defaults", self.client_defaults),
            (IP, self.ip, "--ip-defaults", self.ip_defaults),
        ):
            if name is not None and is_default:
                raise UsageError(f"--{kind} {name} and {flag} exclude each other: give one of them")
            if name == "":
                raise UsageError(f"--{kind} cannot be empty")
            if kind == USER and name is not None and name.startswith("User:"):
                raise UsageError(f"--user {name}: give the name alone, {name.removeprefix('User:')}")
            if name is not None or is_default:
                found[kind] = name
        if IP in found and len(found) > 1:
            raise UsageError(
                "quotas of an address do not combine with others: give --ip without --user and --client-id"
            )
        return found

    def entity(self) -> QuotaEntity:
        """Return the named entity. Raises UsageError without one."""
        named = self.named()
        if not named:
            raise UsageError(
                "no entity: give --user, --client-id, both, or --ip; "
                "or --user-defaults, --client-defaults, --ip-defaults"
            )
        return tuple(sorted(named.items()))


class _Row(NamedTuple):
    """One quota, or the change of one. None: no quota."""

    entity: QuotaEntity
    key: str
    value: float | None


def list_(
    servers: ClusterOptions,
    clients: _Clients,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Only quotas of exactly this entity: with --user, none of a user's client ids."),
    ] = False,
    json_: Json = False,
) -> int:
    """List quotas: all, or those that name a user, a client id or both.

    \b
    Examples:
      stratalog quotas list -b h:9092
      stratalog quotas list -b h:9092 --user alice --json
    """
    named = clients.named()
    with servers.open() as connection:
        found = _described(connection, named, strict=strict)
    _show(found, json_=json_)
    return 0


def set_(
    servers: ClusterOptions,
    clients: _Clients,
    quotas: Quotas = None,
    add_config: AddConfig = None,
    dry_run: DryRun = False,
    json_: Json = False,
) -> int:
    """Set quotas of a user, a client id, both together, or an address. They apply from the next request on.

    Rates are bytes, partitions or connections per second; request_percentage is the time of one thread in percent. Each
    broker of a cluster measures separately.

    \b
    Examples:
      stratalog quotas set -b h:9092 --user alice producer_byte_rate=1048576
      stratalog quotas set -b h:9092 --user-defaults --client-id batch \\
        consumer_byte_rate=5e6 request_percentage=50
      stratalog quotas set -b h:9092 --ip 10.0.0.7 connection_creation_rate=5
    """
    entity = clients.entity()
    given = [*(quotas or ()), *(pair for text in add_config or () for pair in text.split(",") if pair.strip())]
    values = dict(_value(entity, pair) for pair in given)
    if not values:
        raise UsageError(f"nothing to set: give QUOTA=N, with one of {', '.join(keys_of(entity))}")
    rows = [_Row(entity, key, value) for key, value in values.items()]
    with servers.open() as connection:
        _alter(connection, rows, dry_run=dry_run)
    _show(rows, json_=json_)
    return 0


def remove(
    servers: ClusterOptions,
    clients: _Clients,
    quotas: Keys = None,
    delete_config: DeleteConfig = None,
    dry_run: DryRun = False,
    json_: Json = False,
) -> int:
    """Remove quotas of a user, a client id, both together, or an address. Prints the removed quotas.

    \b
    Examples:
      stratalog quotas remove -b h:9092 --user alice producer_byte_rate
      stratalog quotas remove -b h:9092 --ip-defaults --dry-run
    """
    entity = clients.entity()
    keys = [*(quotas or ()), *(key.strip() for text in delete_config or () for key in text.split(",") if key.strip())]
    for key in keys:
        _check_key(entity, key)
    with servers.open() as connection:
        known = [row for row in _described(connection, dict(entity), strict=True) if row.entity == entity]
        missing = set(keys) - {row.key for row in known}
        if missing or not known:
            has = ", ".join(row.key for row in known) or "no quota"
            what = f", not {', '.join(sorted(missing))}" if missing else ""
            raise RefusedError(f"{_sentence(entity)} has {has}{what}; `stratalog quotas list` shows all")
        gone = [row for row in known if not keys or row.key in keys]
        _alter(connection, [row._replace(value=None) for row in gone], dry_run=dry_run)
    _show(gone, json_=json_)
    return 0


# --- the command line -------------------------------------------------------------------------------------------------


def _value(entity: QuotaEntity, pair: str) -> tuple[str, float]:
    key, separator, text = (part.strip() for part in pair.partition("="))
    if not separator:
        raise UsageError(f"{pair}: expected QUOTA=N, as producer_byte_rate=1048576")
    _check_key(entity, key)
    try:
        value = float(text)
        check_quota(entity, key, value)
    except ValueError:
        raise UsageError(f"{pair}: {text or 'nothing'} is not a number") from None
    except InvalidRequestError as error:
        raise UsageError(f"{pair}: {error}") from None
    return key, value


def _check_key(entity: QuotaEntity, key: str) -> None:
    keys = keys_of(entity)
    if key in keys:
        return
    if key in ADDRESS_QUOTAS:
        raise UsageError(f"{key} is a quota of addresses: give --ip or --ip-defaults")
    if key in CLIENT_QUOTAS:
        raise UsageError(f"{key} is a quota of users and client ids: an address has {', '.join(keys)}")
    near = get_close_matches(key, keys, 1)
    raise UsageError(f"there is no quota {key}: " + (f"is it {near[0]}?" if near else f"expected {', '.join(keys)}"))


# --- on the wire ------------------------------------------------------------------------------------------------------


def _described(connection: Cluster, named: dict[str, str | None], *, strict: bool) -> list[_Row]:
    components = [
        {"entity_type": kind, "match_type": _DEFAULT if name is None else _EXACT, "match": name}
        for kind, name in named.items()
    ]
    answer = connection.any.call(
        ApiKey.DESCRIBE_CLIENT_QUOTAS, _VERSIONS, components=components, strict=strict and bool(components)
    )
    check(answer.error_code, answer.error_message, "Could not list quotas")
    rows = [
        _Row(tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)), value.key, value.value)
        for entry in answer.entries or ()
        for value in entry.values
    ]
    return sorted(rows, key=lambda row: ([(kind, name or "") for kind, name in row.entity], row.key))


def _alter(connection: Cluster, rows: list[_Row], *, dry_run: bool) -> None:
    entity = rows[0].entity
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "ops": [{"key": row.key, "value": row.value or 0.0, "remove": row.value is None} for row in rows],
    }
    answer = connection.any.call(ApiKey.ALTER_CLIENT_QUOTAS, _VERSIONS, entries=[entry], validate_only=dry_run)
    for result in answer.entries:
        check(result.error_code, result.error_message, f"Could not change the quotas of {_sentence(entity)}")


# --- output -----------------------------------------------------------------------------------------------------------


def _show(rows: Iterable[_Row], *, json_: bool) -> None:
    if json_:
        shown = [
            {"entity": dict(row.entity), "quota": row.key, "value": row.value}
            for row in rows
        ]  # fmt: skip
        print_json({"quotas": shown})
        return
    print_table(_COLUMNS, [_cells(row) for row in rows])


def _cells(row: _Row) -> tuple[str, ...]:
    names = {kind: _SHOWN_DEFAULT if name is None else name for kind, name in row.entity}
    return (*(names.get(kind, "") for kind in (USER, CLIENT_ID, IP)), row.key, _number(row.value))


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return str(int(value)) if value.is_integer() else str(value)


def _sentence(entity: QuotaEntity) -> str:
    return " and ".join(f"the default {kind}" if name is None else f"{kind} {name}" for kind, name in reversed(entity))
