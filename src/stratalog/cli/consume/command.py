"""The command line of `stratalog consume`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Annotated, Any

import typer

from stratalog.cli.completion import complete_groups, complete_topics
from stratalog.cli.connection import ClusterOptions
from stratalog.cli.consume.offset_range import (
    END,
    START,
    Anchor,
    OffsetPoint,
    OffsetSpan,
    moment_ms,
    parse_offset,
    resolve,
)
from stratalog.cli.consume.output_format import (
    PersonPrinter,
    RecordPrinter,
    compile_format,
    names_batch,
    print_as_json,
)
from stratalog.cli.consume.record_filter import compile_filter
from stratalog.cli.consume.unpacking import unpacker
from stratalog.cli.options import JsonLines, SchemaRegistryUrl
from stratalog.cli.out import on_terminal
from stratalog.cli.schema_registry import schema_decoder
from stratalog.cli.streams import stdout_bytes
from stratalog.cli.topic_lookup import matching_topics, named_topics
from stratalog.errors import UsageError
from stratalog.util import SYSTEM_CLOCK, terminal_width
from stratalog.wire.client import Cluster, TopicInfo


class IsolationLevel(Enum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


def consume(
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC..", show_default=False, help="The topics.", autocompletion=complete_topics),
    ],
    servers: ClusterOptions,
    regex: Annotated[
        bool, typer.Option("--regex", "-r", help="TOPIC.. are regular expressions for whole names.")
    ] = False,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, metavar="N", help="Only this partition.")
    ] = None,
    offset: Annotated[
        list[str] | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="[P=]OFFSET",
            help="Where to begin: start, end, an offset N, N-M (up to M, without it), -N before the end, +N after the "
            "start, @TIME, @-1h, @TIME:TIME. P= applies only to partition P. Default: start.",
        ),
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Begin at this time: ISO 8601, ms, -1h, now.")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Stop at the first record at or after this time.")
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--exit", "-e", help="Stop at the current end. Default: wait for more.")
    ] = False,
    num: Annotated[
        int | None, typer.Option("--num", "--count", "-n", "-c", min=0, metavar="N", help="Stop after N records.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-G",
            metavar="GROUP",
            help="Join this group, start at its offsets, and commit.",
            autocompletion=complete_groups,
        ),
    ] = None,
    commit: Annotated[bool, typer.Option("--commit/--no-commit", help="With --group: commit printed records.")] = True,
    filter_: Annotated[
        str | None,
        typer.Option("--filter", metavar="CONDITION", help="Only records that match this condition, see below."),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", "-f", metavar="FORMAT", help="Format of a printed record, see below."),
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", metavar="SEP", help="Print keys too, followed by this.")
    ] = None,
    delimiter: Annotated[
        str, typer.Option("--delimiter", "-D", metavar="SEP", help="Print this after each record.", show_default=False)
    ] = "\\n",
    null: Annotated[bool, typer.Option("--null", "-Z", help="Print NULL for keys and values that are null.")] = False,
    unpack: Annotated[
        list[str] | None,
        typer.Option("--unpack", "-s", metavar="[FIELD=]LAYOUT", help="Read numbers from key or value, see below."),
    ] = None,
    isolation_level: Annotated[
        IsolationLevel,
        typer.Option("--isolation-level", help="Whether to read records of open and aborted transactions."),
    ] = IsolationLevel.READ_UNCOMMITTED,
    control_records: Annotated[
        bool,
        typer.Option(
            "--control-records",
            help="Print control records (commit, abort) too; with --json also the leader epoch and the producer.",
        ),
    ] = False,
    rack: Annotated[
        str | None,
        typer.Option("--rack", metavar="RACK", help="Read from a replica in this rack, if the brokers allow that."),
    ] = None,
    schema_registry: SchemaRegistryUrl = None,
    json_: JsonLines = False,
    meta_only: Annotated[
        bool, typer.Option("--meta-only", help="With --json: print the size of the value, not the value.")
    ] = False,
    json_of_kcat: Annotated[bool, typer.Option("-J", hidden=True)] = False,
) -> int:
    """Read records of topics. A pipe gets raw values; a terminal also partition, offset, time, key and headers.

    FORMAT has verbs: %t topic, %p partition, %o offset, %k key, %v value, %h headers, %d timestamp in ms, %K %V sizes,
    %H number of headers, %R size of the value as four bytes, %i running number, %e leader epoch, %x producer id, %y
    producer epoch, %c commit or abort for such a control record; %v{hex}, %v{base64}, %d{iso}, %d{%H:%M}; %h{%k:%v } is
    the format of each header; \\n, \\t, \\xHH.

    LAYOUT has letters as Python's struct: b h i q are 1, 2, 4 and 8 bytes, B H I Q without sign, f d floats, c a
    character, s the rest as text, $ the end; big-endian until <. FIELD is key or value; by default both. Several
    letters give a list. Formats and conditions see the numbers.

    With --schema-registry, keys and values with a schema id are decoded and printed as JSON.

    CONDITION compares topic, partition, offset, timestamp, key, value, headers.NAME, and parts of JSON such as
    value.items[0].sku, by == != < <= > >= ~ (regular expression) in, with and, or, not and parentheses.

    \b
    Examples:
      stratalog consume orders -b h:9092
      stratalog consume orders -o -10 -e --json -b h:9092
      stratalog consume 'web-.*' --regex -o @-1h -f '%t %k %v\\n' -b h:9092
      stratalog consume orders -o 0=100-200 -p 0 -b h:9092
      stratalog consume orders -e -f '%o %e %x %c %v\\n' --control-records -b h:9092
      stratalog consume orders -e -b h:9092 \\
        --filter 'value.total > 100 and headers.source == "web"'
    """
    now_ms = SYSTEM_CLOCK.now_ms()
    output = stdout_bytes()
    ranges = _ranges(offset or (), from_, to, until_end, now_ms)
    passes = None if filter_ is None else compile_filter(filter_, now_ms)
    as_json = json_ or json_of_kcat
    if meta_only and not as_json:
        raise UsageError("--meta-only needs --json")
    if as_json and format_ is not None:
        raise UsageError("give either --json or --format")
    write: RecordPrinter = (
        partial(print_as_json, with_value=not meta_only)
        if as_json
        else _text_printer(format_, key_separator, delimiter, null, with_topic=len(topics) > 1 or regex)
    )
    decode = _decoder(schema_registry, unpack or ())
    of_batches = control_records or (format_ is not None and names_batch(format_))
    if of_batches and (group is not None or rack is not None):
        raise UsageError("--control-records and %e %x %y %c read from leaders; give neither --group nor --rack")

    from stratalog.cli.consume.batch_reading import WholeBatchReader  # loads a client, which --help does not need
    from stratalog.cli.consume.printing import print_records
    from stratalog.cli.consume.reading import GroupReader, RangeReader
    from stratalog.cli.threads import run_to_end

    with servers.open() as cluster:
        found = matching_topics(cluster, topics) if regex else named_topics(cluster, topics)
        read_committed = isolation_level is IsolationLevel.READ_COMMITTED
        reader: GroupReader | RangeReader | WholeBatchReader
        if group is not None:
            if partitions or any(each.stop not in (None, END) for each in ranges.values()) or len(ranges) > 1:
                raise UsageError("--group: the group decides on partitions and offsets; give --offset start or end")
            reader = GroupReader(
                cluster,
                group,
                list(found),
                pattern="|".join(f"(?:{text})$" for text in topics) if regex else None,
                from_start=_group_begins_at_start(ranges[None]),
                until_end=until_end,
                commits=commit,
                read_committed=read_committed,
                rack=rack,
            )
        else:
            chosen = _chosen(cluster, found, partitions or (), ranges)
            resolved = resolve(cluster, chosen, read_committed=read_committed)
            if of_batches:
                reader = WholeBatchReader(
                    cluster, resolved, read_committed=read_committed, with_control=control_records
                )
            else:
                reader = RangeReader(cluster, resolved, read_committed=read_committed, rack=rack)
        run_to_end(print_records(reader, output, write, passes, num, decode))
    return 0


def _ranges(
    offsets: Sequence[str], from_: str | None, to: str | None, until_end: bool, now_ms: int
) -> dict[int | None, OffsetSpan]:
    """Return the range of each named partition, and under None that of the others."""
    ranges: dict[int | None, OffsetSpan] = {}
    for text in offsets:
        number, parsed = parse_offset(text, now_ms)
        before = ranges.get(number)
        if before is not None and text.startswith("e@"):  # an end for the preceding start
            parsed = replace(before, stop=parsed.stop)
        elif before is not None:
            raise UsageError(f"--offset {text}: given twice for the same partitions")
        ranges[number] = parsed
    common = ranges.setdefault(None, OffsetSpan())
    if from_ is not None:
        if common.begin != START:
            raise UsageError("give either --offset or --from")
        ranges[None] = replace(common, begin=OffsetPoint(Anchor.TIME, moment_ms(from_, "--from", now_ms)))
    stop = END if until_end else None
    if to is not None:
        stop = OffsetPoint(Anchor.TIME, moment_ms(to, "--to", now_ms))
    return {number: each if each.stop is not None else replace(each, stop=stop) for number, each in ranges.items()}


def _decoder(schema_registry: str | None, layouts: Sequence[str]) -> Callable[[Any], Any] | None:
    if schema_registry is not None and layouts:
        raise UsageError("give either --schema-registry or --unpack")
    if not layouts and schema_registry is None:
        return None
    decode = unpacker(layouts) if schema_registry is None else schema_decoder(schema_registry)
    return lambda record: record if getattr(record, "control", "") else decode(record)


def _group_begins_at_start(common: OffsetSpan) -> bool:
    if common.begin not in (START, END):
        raise UsageError(
            "--group: the group decides where to start; --offset start or end applies to a group without commits"
        )
    return common.begin == START


def _chosen(
    cluster: Cluster,
    topics: dict[str, TopicInfo],
    partitions: Collection[int],
    ranges: dict[int | None, OffsetSpan],
) -> dict[tuple[str, int], OffsetSpan]:
    """Return the range of each requested partition. Raises UsageError for one that no topic has."""
    known = {number for topic in topics.values() for number in topic.partitions}
    for number in [*partitions, *ranges]:
        if number is not None and number not in known:
            raise UsageError(f"{' and '.join(topics)} at {cluster.any.address}: no partition {number}")
    return {
        (name, number): ranges.get(number, ranges[None])
        for name, topic in topics.items()
        for number in topic.partitions
        if not partitions or number in partitions
    }


def _text_printer(
    format_: str | None, key_separator: str | None, delimiter: str, null: bool, *, with_topic: bool
) -> RecordPrinter:
    written = b"NULL" if null else b""
    if format_ is not None:
        return compile_format(format_, written)
    if key_separator is None and delimiter == "\\n" and not null and on_terminal():
        in_colour = not os.environ.get("NO_COLOR")
        width = terminal_width()
        return PersonPrinter(with_topic=with_topic, width=width, in_colour=in_colour)
    key = "" if key_separator is None else f"%k{key_separator.replace('%', '%%')}"
    return compile_format(f"{key}%v{delimiter.replace('%', '%%')}", written)
