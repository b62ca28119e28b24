"""`stratalog users`: who may log in by SCRAM. Passwords come from a prompt or a file, and never leave this machine."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from getpass import getpass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from stratalog.broker.security import ITERATIONS_MAX, ITERATIONS_MIN, SCRAM_HASHES
from stratalog.cli.completion import complete_users
from stratalog.cli.connection import ClusterOptions
from stratalog.cli.options import Json, PlanOnly
from stratalog.cli.out import print_json
from stratalog.cli.streams import stdin_bytes
from stratalog.errors import ResourceNotFoundError, UsageError
from stratalog.util import REAL_FILESYSTEM, print_table, random_bytes
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, RefusedError, check

_VERSIONS = (0, 0)
_SALT_BYTES = 24
_DEFAULT = "SCRAM-SHA-512"
_NUMBERS = {mechanism: number for number, mechanism in enumerate(SCRAM_HASHES, start=1)}

User = Annotated[
    str, typer.Argument(metavar="NAME", help="The name, without User: in front.", autocompletion=complete_users)
]
Users = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME..", show_default=False, help="Only these users.", autocompletion=complete_users),
]
Mechanisms = Annotated[
    list[str] | None,
    typer.Option("--mechanism", metavar="M", help="SCRAM-SHA-512 or SCRAM-SHA-256; may be given twice."),
]
Iterations = Annotated[
    int,
    typer.Option(
        "--iterations",
        metavar="N",
        help=f"Rounds of hashing, {ITERATIONS_MIN} to {ITERATIONS_MAX}: more make stolen keys harder to guess from.",
    ),
]
PasswordFile = Annotated[
    str | None,
    typer.Option(
        "--password-file", metavar="FILE", help="Read the password from the first line of a file; - for stdin."
    ),
]


class _Credential(NamedTuple):
    """A SCRAM credential of a user, or a change to one."""

    user: str
    mechanism: str
    iterations: int
    change: str = ""


def list_(
    servers: ClusterOptions,
    users: Users = None,
    json_: Json = False,
) -> int:
    """List the users with SCRAM credentials, their mechanisms and rounds.

    \b
    Examples:
      stratalog users list -b h:9092
      stratalog users list alice bob -b h:9092 --json
    """
    with servers.open() as connection:
        found = _described(connection, users)
    _show(found, json_=json_)
    return 0


def set_(
    servers: ClusterOptions,
    user: User,
    mechanism: Mechanisms = None,
    iterations: Iterations = ITERATIONS_MIN,
    password_file: PasswordFile = None,
    dry_run: PlanOnly = False,
    json_: Json = False,
) -> int:
    """Create a user, or change its password. Asks for the password, unless a file holds it.

    The brokers never see the password. The change takes effect at once; open connections stay.

    \b
    Examples:
      stratalog users set alice -b h:9092
      stratalog users set alice -b h:9092 --mechanism SCRAM-SHA-256 \\
        --iterations 8192 --password-file alice.password
    """
    mechanisms = _mechanisms(mechanism) or [_DEFAULT]
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise UsageError(f"--iterations {iterations}: brokers take {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    _check_name(user)
    password = "" if dry_run and password_file is None else _password(user, password_file)
    with servers.open() as connection:
        known = {found.mechanism for found in _described(connection, [user], may_miss=True)}
        if not dry_run:
            for each in mechanisms:
                wanted = _upsertion(user, password, each, iterations)
                _alter(connection, f"Could not set {user}", deletions=[], upsertions=[wanted])
    changes = [_Credential(user, each, iterations, "changed" if each in known else "added") for each in mechanisms]
    _show(changes, json_=json_, changed=True)
    return 0


def remove(
    servers: ClusterOptions,
    user: User,
    mechanism: Mechanisms = None,
    dry_run: PlanOnly = False,
    json_: Json = False,
) -> int:
    """Remove a user, or its credential of one mechanism. Open connections stay.

    \b
    Examples:
      stratalog users remove alice -b h:9092
      stratalog users remove alice -b h:9092 --mechanism SCRAM-SHA-256
    """
    wanted = _mechanisms(mechanism)
    with servers.open() as connection:
        known = _described(connection, [user])
        missing = set(wanted) - {found.mechanism for found in known}
        if missing:
            raise RefusedError(
                f"{user} has no credential of {', '.join(sorted(missing))}, only of "
                f"{', '.join(found.mechanism for found in known)}"
            )
        gone = [found for found in known if not wanted or found.mechanism in wanted]
        if not dry_run:
            for found in gone:
                deletion = {"name": user, "mechanism": _NUMBERS[found.mechanism]}
                _alter(connection, f"Could not remove {user}", deletions=[deletion], upsertions=[])
    _show([found._replace(change="removed") for found in gone], json_=json_, changed=True)
    return 0


def _check_name(user: str) -> None:
    if not user:
        raise UsageError("the name of a user cannot be empty")
    if user.startswith("User:"):
        raise UsageError(f"{user}: give the name alone, {user.removeprefix('User:')}; User: is for access rules")


def _mechanisms(named: Iterable[str] | None) -> list[str]:
    for name in named or ():
        if name.upper() not in SCRAM_HASHES:
            raise UsageError(
                f"--mechanism {name}: expected {' or '.join(SCRAM_HASHES)}; users of PLAIN are in server.properties"
            )
    return list(dict.fromkeys(name.upper() for name in named or ()))


def _password(user: str, file: str | None) -> str:
    if file is not None:
        password = _first_line(file)
    elif sys.stdin.isatty():
        password = getpass(f"Password of {user}: ")
        if password != getpass("Once more: "):
            raise UsageError("the two passwords differ")
    else:
        raise UsageError("there is no terminal to ask for the password: give --password-file FILE, or - for stdin")
    if not password:
        raise UsageError("the password cannot be empty")
    return password


def _first_line(file: str) -> str:
    where = "standard input" if file == "-" else file
    try:
        data = stdin_bytes().readline() if file == "-" else REAL_FILESYSTEM.read_bytes(Path(file))
        return data.decode().partition("\n")[0].removesuffix("\r")
    except UnicodeDecodeError:
        raise UsageError(f"--password-file {where}: expected text") from None
    except OSError as error:
        raise UsageError(f"--password-file {where}: {error.strerror or error}") from None


def _described(connection: Cluster, users: list[str] | None, *, may_miss: bool = False) -> list[_Credential]:
    asked = None if not users else [{"name": user} for user in dict.fromkeys(users)]
    answer = connection.any.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, _VERSIONS, users=asked)
    check(answer.error_code, answer.error_message, "Could not list users")
    names = {number: mechanism for mechanism, number in _NUMBERS.items()}
    found = []
    for result in answer.results:
        if int(result.error_code) == ResourceNotFoundError.code and may_miss:
            continue
        if int(result.error_code) == ResourceNotFoundError.code:
            raise RefusedError(f"there is no user {result.user} with SCRAM credentials; `stratalog users list` has all")
        check(result.error_code, result.error_message, f"Could not list {result.user}")
        found += [
            _Credential(result.user, names.get(info.mechanism, str(info.mechanism)), info.iterations)
            for info in result.credential_infos
        ]
    return sorted(found)


def _upsertion(user: str, password: str, mechanism: str, iterations: int) -> dict[str, Any]:
    salt = random_bytes(_SALT_BYTES)
    return {
        "name": user,
        "mechanism": _NUMBERS[mechanism],
        "iterations": iterations,
        "salt": salt,
        "salted_password": hashlib.pbkdf2_hmac(SCRAM_HASHES[mechanism], password.encode(), salt, iterations),
    }


def _alter(connection: Cluster, what: str, **changes: list[dict[str, Any]]) -> None:
    """Make one change: brokers refuse a second one of the same user in a request."""
    answer = connection.any.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, _VERSIONS, **changes)
    for result in answer.results:
        check(result.error_code, result.error_message, what)


def _show(found: list[_Credential], *, json_: bool, changed: bool = False) -> None:
    columns = ("user", "mechanism", "iterations", "change")[: 4 if changed else 3]
    if json_:
        print_json({"users": [dict(zip(columns, each, strict=False)) for each in found]})
        return
    print_table(columns, [each[: len(columns)] for each in found])
