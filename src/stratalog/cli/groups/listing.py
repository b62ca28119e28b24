"""`stratalog groups list|delete`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from stratalog.cli.completion import complete_groups
from stratalog.cli.connection import ClusterOptions
from stratalog.cli.groups.queries import list_groups, named_groups
from stratalog.cli.options import Json, JsonLines
from stratalog.cli.out import on_terminal, print_json
from stratalog.errors import StratalogError, UsageError
from stratalog.util import print_table
from stratalog.wire import ApiKey
from stratalog.wire.client import Coordinators, RefusedError, check

GroupNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="GROUP..", show_default=False, help="The groups.", autocompletion=complete_groups),
]
GroupOption = Annotated[
    list[str] | None, typer.Option("--group", metavar="GROUP", help="Same as GROUP, for users of Kafka's tools.")
]

_NON_EMPTY_GROUP = 68


class GroupType(Enum):
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


def list_(
    servers: ClusterOptions,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only groups in this state: Empty, Stable, ..."),
    ] = None,
    type_: Annotated[list[GroupType] | None, typer.Option("--type", help="Only groups of this type.")] = None,
    json_: JsonLines = False,
) -> int:
    """List groups. A pipe gets their names, one per line.

    \b
    Examples:
      stratalog groups list -b h:9092
      stratalog groups list --state Empty --type consumer --json -b h:9092
    """
    states = [each.strip() for text in state or () for each in text.split(",")]
    with servers.open() as cluster:
        found = list_groups(cluster, states, [each.value for each in type_ or ()])
    if json_:
        for group in found.values():
            print_json(
                {
                    "group": group.name,
                    "type": group.type,
                    "state": group.state,
                    "protocolType": group.protocol,
                    "coordinator": group.coordinator,
                }
            )
    elif on_terminal():
        rows = [(group.name, group.type, group.state, group.protocol, group.coordinator) for group in found.values()]
        print_table(("group", "type", "state", "protocol", "coordinator"), rows)
    else:
        for name in found:
            print(name)
    return 0


def delete(
    servers: ClusterOptions,
    names: GroupNames = None,
    group: GroupOption = None,
    json_: Json = False,
) -> int:
    """Delete groups with all their offsets. A group that has members is not deleted.

    Exit code 1: some could not be deleted; the others were.

    \b
    Example:
      stratalog groups delete billing -b h:9092
    """
    wanted = [*(names or []), *(group or [])]
    if not wanted:
        raise UsageError("no group given: stratalog groups delete GROUP --bootstrap-server H:P")
    deleted: list[str] = []
    failure: StratalogError | None = None
    with servers.open() as cluster:
        for each in named_groups(cluster, wanted):
            (answer,) = (
                Coordinators(cluster)
                .of_group(each.name)
                .call(ApiKey.DELETE_GROUPS, (0, 2), groups_names=(each.name,))
                .results
            )
            try:
                hint = "it has members; stop them first" if int(answer.error_code) == _NON_EMPTY_GROUP else None
                check(answer.error_code, hint, f"Group {each.name}")
                deleted.append(each.name)
            except RefusedError as error:
                failure = failure or error
    if json_:
        print_json({"deleted": deleted})
    if failure is not None:
        raise failure
    return 0
