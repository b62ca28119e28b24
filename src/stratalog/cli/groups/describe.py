"""`stratalog groups describe`: offsets and lag by partition, members, and state of groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from stratalog.cli.connection import ClusterOptions
from stratalog.cli.groups.listing import GroupNames, GroupOption
from stratalog.cli.groups.queries import WITH_OFFSETS, GroupDetails, PartitionLag, details, lags, named_groups
from stratalog.cli.options import JsonLines
from stratalog.cli.out import counted, on_terminal, print_json
from stratalog.errors import UsageError
from stratalog.util import TableColumn, print_table


def describe(
    servers: ClusterOptions,
    names: GroupNames = None,
    group: GroupOption = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="All groups.")] = False,
    members: Annotated[bool, typer.Option("--members", help="Show members and their assignments.")] = False,
    state: Annotated[bool, typer.Option("--state", help="Show only the state of the group.")] = False,
    json_: JsonLines = False,
) -> int:
    """Describe classic, consumer (KIP-848) and share groups (KIP-932): offset, end and lag of each partition.

    \b
    Examples:
      stratalog groups describe billing -b h:9092
      stratalog groups describe --all-groups --members -b h:9092
      stratalog groups describe billing --json -b h:9092
    """
    wanted = [*(names or []), *(group or [])]
    if bool(wanted) == all_groups:
        raise UsageError("give either GROUP.. or --all-groups")
    with servers.open() as cluster:
        for summary in named_groups(cluster, wanted):
            found = details(cluster, summary)
            with_offsets = summary.type in WITH_OFFSETS and (json_ or not (members or state))
            offsets = lags(cluster, found) if with_offsets else []
            if json_:
                print_json(_as_json(found, offsets))
            else:
                _print_heading(found, offsets)
                if members:
                    _print_members(found)
                elif not state:
                    _print_offsets(offsets)
    return 0


def _as_json(group: GroupDetails, offsets: Sequence[PartitionLag]) -> dict[str, Any]:
    return {
        "group": group.summary.name,
        "type": group.summary.type,
        "state": group.summary.state,
        "protocolType": group.summary.protocol,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "coordinator": group.summary.coordinator,
        "members": [
            {
                "memberId": member.member_id,
                "instanceId": member.instance_id,
                "clientId": member.client_id,
                "host": member.host,
                "epoch": member.epoch,
                "assignment": [
                    {"topic": topic, "partitions": sorted(partitions)}
                    for topic, partitions in sorted(member.assignment.items())
                ],
            }
            for member in group.members
        ],
        "offsets": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "currentOffset": each.committed,
                "logStartOffset": each.start,
                "logEndOffset": each.end,
                "lag": each.lag,
                "metadata": each.metadata,
                "memberId": None if each.member is None else each.member.member_id,
            }
            for each in offsets
        ],
    }


def _print_heading(group: GroupDetails, offsets: Sequence[PartitionLag]) -> None:
    summary = group.summary
    known = [each.lag for each in offsets if each.lag is not None]
    parts = [summary.type, summary.state, counted(len(group.members), "member")]
    parts += [f"assignor {group.assignor}"] if group.assignor else []
    parts += [f"epoch {group.epoch}"] if group.epoch is not None else []
    parts += [f"lag {sum(known):,}"] if known else []
    line = f"{summary.name}: {', '.join(parts)}"
    if not on_terminal():
        print(line)
        return
    # rich is only needed on a terminal
    from rich.console import Console
    from rich.text import Text

    colour = {"Stable": "green", "Empty": "yellow", "Dead": "red"}.get(summary.state, "cyan")
    text = Text(line, style="bold")
    text.highlight_words([summary.state], style=colour)
    Console(highlight=False).print(text)


def _print_offsets(offsets: Sequence[PartitionLag]) -> None:
    if not offsets:
        print("  no offsets")
        return
    from rich.text import Text  # only needed with rows to print

    columns = (
        TableColumn("topic"),
        TableColumn("partition", is_number=True),
        TableColumn("current", is_number=True),
        TableColumn("end", is_number=True),
        TableColumn("lag", is_number=True),
        TableColumn("start", rank=3, is_number=True),
        TableColumn("client", rank=1),
        TableColumn("host", rank=2),
        TableColumn("member", rank=4),
    )
    rows = [
        (
            each.topic,
            each.partition,
            "-" if each.committed is None else each.committed,
            "-" if each.end is None else each.end,
            Text("-" if each.lag is None else str(each.lag), style="yellow" if each.lag else ""),
            "-" if each.start is None else each.start,
            "-" if each.member is None else each.member.client_id,
            "-" if each.member is None else each.member.host,
            "-" if each.member is None else each.member.member_id,
        )
        for each in offsets
    ]
    print_table(columns, rows, is_terminal=on_terminal())


def _print_members(group: GroupDetails) -> None:
    if not group.members:
        print("  no members")
        return
    columns = (
        TableColumn("member"),
        TableColumn("instance", rank=3),
        TableColumn("client", rank=1),
        TableColumn("host", rank=2),
        TableColumn("epoch", rank=4, is_number=True),
        TableColumn("partitions", is_number=True),
        TableColumn("assignment"),
    )
    rows = [
        (
            member.member_id,
            member.instance_id or "-",
            member.client_id,
            member.host,
            "-" if member.epoch is None else member.epoch,
            member.partitions,
            " ".join(
                f"{topic}({','.join(map(str, sorted(partitions)))})"
                for topic, partitions in sorted(member.assignment.items())
            ),
        )
        for member in group.members
    ]
    print_table(columns, rows, is_terminal=on_terminal())
