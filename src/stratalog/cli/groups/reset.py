"""`stratalog groups reset-offsets`: set a group's offsets by offset, by time, or from a file."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from stratalog.cli.completion import complete_groups
from stratalog.cli.connection import ClusterOptions
from stratalog.cli.groups.queries import SHARE, GroupSummary, details, list_groups, require_offsets
from stratalog.cli.groups.share_offsets import set_share_offsets, share_offsets
from stratalog.cli.options import JsonLines
from stratalog.cli.out import notice, on_terminal, print_json
from stratalog.cli.tier import span_ms, time_ms
from stratalog.cli.topic_lookup import named_topics
from stratalog.errors import UsageError
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, TableColumn, print_table
from stratalog.wire.client import EARLIEST_OFFSET, LATEST_OFFSET, Cluster, Coordinators, GroupOffset, RefusedError

TopicPartition = tuple[str, int]

_TOPIC = re.compile(r"([^:]+)(?::(\d{1,10}(?:,\d{1,10})*))?")
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.\d+)?S)?)?")
#: States of a group without members, whose offsets can be set.
_WITHOUT_MEMBERS = ("Empty", "Dead", "")


def reset_offsets(
    group: Annotated[
        str,
        typer.Argument(
            metavar="GROUP", show_default=False, help="The group. It may be new.", autocompletion=complete_groups
        ),
    ],
    servers: ClusterOptions,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="T[:0,1]", help="Only this topic, or these partitions of it.")
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics for which the group has offsets.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end of the log.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="To the committed offset.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="To this offset.")] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime", metavar="TIME", help="To the first record at or after this time: ISO 8601 or ms."
        ),
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", metavar="SPAN", help="To this long before now: 1h, 7d, PT1H30M.")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", help="Move by N records, backwards if negative.")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", metavar="CSV", help="To the offsets in a file with lines topic,partition,offset."),
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Apply the changes. Default: only show them.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the changes.")] = False,
    export: Annotated[bool, typer.Option("--export", help="Print lines for --from-file.")] = False,
    json_: JsonLines = False,
) -> int:
    """Set the offsets of a group that has no members. Nothing is changed without --execute.

    An offset outside a partition is replaced by its nearest offset. For a share group (KIP-932), this sets the start
    offsets.

    \b
    Examples:
      stratalog groups reset-offsets billing --all-topics --to-earliest -b h:9092
      stratalog groups reset-offsets billing --topic orders:0,1 --by-duration 1h \\
        --execute -b h:9092
      stratalog groups reset-offsets billing --all-topics --to-current --export \\
        -b h:9092 > offsets.csv
    """
    ways = {
        "--to-earliest": to_earliest,
        "--to-latest": to_latest,
        "--to-current": to_current,
        "--to-offset": to_offset is not None,
        "--to-datetime": to_datetime is not None,
        "--by-duration": by_duration is not None,
        "--shift-by": shift_by is not None,
        "--from-file": from_file is not None,
    }
    if sum(ways.values()) != 1:
        raise UsageError(f"give one of {', '.join(ways)}")
    if execute and dry_run:
        raise UsageError("give either --execute or --dry-run")
    if (bool(topic) + all_topics) != (0 if from_file is not None else 1):
        raise UsageError("give either --topic or --all-topics" + (", or neither with --from-file" if from_file else ""))
    time = _moment_ms(to_datetime, by_duration)
    with servers.open() as cluster:
        is_share = _require_no_members(cluster, group) == SHARE
        before = _offsets(cluster, group, is_share=is_share)
        if from_file is not None:
            wanted: Mapping[TopicPartition, int] = _read_plan(from_file, group)
            chosen = _existing(cluster, list(wanted))
        else:
            chosen = _existing(cluster, [*before]) if all_topics else chosen_partitions(cluster, topic or [])
            if not chosen:
                raise UsageError(f"group {group} has no offsets; name a topic with --topic")
        starts, ends = (_listed(cluster, chosen, special) for special in (EARLIEST_OFFSET, LATEST_OFFSET))
        if to_earliest:
            wanted = starts
        elif to_latest:
            wanted = ends
        elif to_offset is not None:
            wanted = dict.fromkeys(chosen, to_offset)
        elif time is not None:
            found = _listed(cluster, chosen, time)
            wanted = {key: ends[key] if found[key] < 0 else found[key] for key in chosen}
        elif from_file is None:
            wanted = {key: before.get(key, ends[key]) + (shift_by or 0) for key in chosen}
        after = {key: min(max(wanted[key], starts[key]), ends[key]) for key in chosen}
        if execute:
            _set_offsets(cluster, group, after, is_share=is_share)
    _print(group, before, after, executed=execute, export=export, as_json=json_)
    return 0


def _offsets(cluster: Cluster, group: str, *, is_share: bool) -> dict[TopicPartition, int]:
    if is_share:
        return {key: each.start for key, each in share_offsets(cluster, group).items()}
    return {key: each.offset for key, each in Coordinators(cluster).committed(group).items() if each.offset >= 0}


def _set_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int], *, is_share: bool) -> None:
    if is_share:
        set_share_offsets(cluster, group, offsets)
    else:
        Coordinators(cluster).commit_offsets(group, {key: GroupOffset(each, "") for key, each in offsets.items()})


def _require_no_members(cluster: Cluster, name: str) -> str | None:
    """Return the type of a group, None for a new one. RefusedError if it has members, whose commits would win."""
    known: GroupSummary | None = list_groups(cluster).get(name)
    if known is None:
        return None
    require_offsets(known)
    now = details(cluster, known)
    if now.summary.state not in _WITHOUT_MEMBERS or now.members:
        raise RefusedError(
            f"group {name} is {now.summary.state} and has {len(now.members)} members; stop them, then set its offsets"
        )
    return known.type


def chosen_partitions(cluster: Cluster, texts: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions of TOPIC or TOPIC:0,1. Raises UsageError, or NothingFoundError for an unknown topic."""
    wanted: dict[str, set[int] | None] = {}
    for text in texts:
        match = _TOPIC.fullmatch(text)
        if match is None:
            raise UsageError(f"--topic {text}: expected TOPIC or TOPIC:0,1,2")
        wanted[match[1]] = None if match[2] is None else set(map(int, match[2].split(",")))
    topics = named_topics(cluster, list(wanted))
    return _existing(
        cluster,
        [
            (name, number)
            for name, numbers in wanted.items()
            for number in (topics[name].partitions if numbers is None else sorted(numbers))
        ],
    )


def _existing(cluster: Cluster, keys: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions. Raises UsageError for an unknown one, NothingFoundError for an unknown topic."""
    topics = named_topics(cluster, sorted({topic for topic, _ in keys}))
    for topic, number in keys:
        if number not in topics[topic].partitions:
            raise UsageError(f"topic {topic} has no partition {number}; it has {len(topics[topic].partitions)}")
    return sorted(keys)


def _listed(cluster: Cluster, keys: Sequence[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
    return {key: answer.offset for key, answer in cluster.list_offsets(dict.fromkeys(keys, timestamp)).items()}


def _moment_ms(to_datetime: str | None, by_duration: str | None) -> int | None:
    if to_datetime is not None:
        return time_ms(to_datetime, "--to-datetime")
    if by_duration is None:
        return None
    match = _DURATION.fullmatch(by_duration)
    if match is not None and any(match.groups()):
        days, hours, minutes, seconds = (int(each or 0) for each in match.groups())
        span = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
    else:
        span = span_ms(by_duration, "--by-duration")
    return max(SYSTEM_CLOCK.now_ms() - span, 0)


def _read_plan(path: Path, group: str) -> dict[TopicPartition, int]:
    """Return the offsets of a file: topic,partition,offset. Skips lines that begin with another group."""
    found = {}
    try:
        rows = list(csv.reader(REAL_FILESYSTEM.read_bytes(path).decode("utf-8-sig").splitlines()))
    except (csv.Error, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: expected lines topic,partition,offset: {error}") from None
    for number, row in enumerate(rows, 1):
        if not row:
            continue
        if len(row) == 4 and row[0] != group:
            continue
        try:
            topic, partition, offset = row[-3:]
            found[topic, int(partition)] = int(offset)
        except ValueError:
            raise UsageError(f"{path}:{number}: expected topic,partition,offset") from None
    if not found:
        raise UsageError(f"{path}: no offsets of group {group}")
    return found


def _print(
    group: str,
    before: Mapping[TopicPartition, int],
    after: Mapping[TopicPartition, int],
    *,
    executed: bool,
    export: bool,
    as_json: bool,
) -> None:
    if export:
        csv.writer(sys.stdout, lineterminator="\n").writerows((*key, offset) for key, offset in sorted(after.items()))
        return
    rows = [(*key, before.get(key), offset) for key, offset in sorted(after.items())]
    if as_json:
        for topic, partition, old, new in rows:
            print_json(
                {
                    "group": group,
                    "topic": topic,
                    "partition": partition,
                    "currentOffset": old,
                    "newOffset": new,
                    "executed": executed,
                }
            )
        return
    columns = (
        TableColumn("topic"),
        TableColumn("partition", is_number=True),
        TableColumn("current", is_number=True),
        TableColumn("new", is_number=True),
    )
    shown = [(topic, partition, "-" if old is None else old, new) for topic, partition, old, new in rows]
    print_table(columns, shown, group if on_terminal() else None, is_terminal=on_terminal())
    if not executed:
        notice("nothing was changed; use --execute to apply")
