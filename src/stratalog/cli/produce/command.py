"""The command line of `stratalog produce`."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from stratalog.cli.completion import complete_topics
from stratalog.cli.connection import ClusterOptions
from stratalog.cli.escapes import unescaped
from stratalog.cli.missing import NothingFoundError
from stratalog.cli.options import Json, SchemaRegistryUrl
from stratalog.cli.out import counted, notice, on_terminal, print_json
from stratalog.cli.produce.input_records import (
    ChunkReader,
    DelimitedReader,
    FieldParser,
    InputFormat,
    JsonParser,
    OutgoingRecord,
    RecordParser,
    RecordReader,
    SchemaParser,
    SizedReader,
    WholeReader,
    parse_headers,
)
from stratalog.cli.schema_registry import SchemaRegistry
from stratalog.cli.streams import stdin_bytes
from stratalog.cli.tier import time_ms
from stratalog.cli.topic_lookup import create_topic, named_topics
from stratalog.errors import UsageError
from stratalog.jobs import SILENT, terminal_progress

_CHUNK_BYTES = 1 << 16
_INT32_MAX = (1 << 31) - 1


class CodecName(Enum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(Enum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


def produce(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", show_default=False, help="The topic.", autocompletion=complete_topics)
    ],
    servers: ClusterOptions,
    messages: Annotated[
        list[str] | None,
        typer.Argument(metavar="MESSAGE..", show_default=False, help="Records. Default: read the input."),
    ] = None,
    file: Annotated[
        list[Path] | None, typer.Option("--file", "-l", metavar="FILE", help="Read this file, not standard input.")
    ] = None,
    input_: Annotated[
        InputFormat,
        typer.Option(
            "--input",
            "-i",
            help="Format of the input: lines; JSON objects, one per line; one record of all bytes, or of each "
            "file (raw); records prefixed by their size in four bytes, big-endian (sized).",
        ),
    ] = InputFormat.LINES,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="The fields of a line: %k key, %v value, %h headers (a=b,c=d), %p partition, %T timestamp in ms; "
            "%v{hex}, %v{base64}.",
        ),
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", metavar="SEP", help="Separator after the key in a line.")
    ] = None,
    delimiter: Annotated[
        str, typer.Option("--delimiter", "-D", metavar="SEP", help="Separator of lines.", show_default=False)
    ] = "\\n",
    num: Annotated[
        int | None, typer.Option("--num", "--count", "-n", "-c", min=1, metavar="N", help="Stop after N records.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", metavar="KEY", help="Key of every record.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every record.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Partition. Default: by the key, as the Java client.")
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option("--timestamp", metavar="TIME", help="Timestamp of every record: ISO 8601 or milliseconds."),
    ] = None,
    empty_is_null: Annotated[
        bool, typer.Option("--null", "-Z", help="Send empty keys and values as null (a tombstone).")
    ] = False,
    compression: Annotated[CodecName, typer.Option("--compression", "-z", help="Codec.")] = CodecName.NONE,
    acks: Annotated[Acks, typer.Option("--acks", help="Required acknowledgements.")] = Acks.ALL,
    idempotence: Annotated[
        bool | None,
        typer.Option(
            "--idempotence/--no-idempotence",
            help="Write each record once, even if a request is retried. Default with --acks all.",
        ),
    ] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, max=_INT32_MAX, help="Maximum bytes of a batch.")
    ] = 1 << 18,
    linger_ms: Annotated[
        int, typer.Option("--linger-ms", min=0, max=_INT32_MAX, help="Time to wait for a batch to fill.")
    ] = 5,
    transactional_id: Annotated[
        str | None,
        typer.Option("--transactional-id", metavar="ID", help="Write in transactions with this id, see below."),
    ] = None,
    transaction_records: Annotated[
        int | None,
        typer.Option(
            "--transaction-records", metavar="N", min=1, help="Commit after each N records. Default: once, at the end."
        ),
    ] = None,
    transaction_timeout_ms: Annotated[
        int,
        typer.Option(
            "--transaction-timeout-ms",
            metavar="MS",
            min=1,
            max=_INT32_MAX,
            help="Time after which the broker aborts an open transaction.",
        ),
    ] = 60_000,
    schema_registry: SchemaRegistryUrl = None,
    key_schema: Annotated[
        int | None, typer.Option("--key-schema", metavar="ID", help="Encode keys, given as JSON, with this schema.")
    ] = None,
    value_schema: Annotated[
        int | None, typer.Option("--value-schema", metavar="ID", help="Encode values, given as JSON, with this schema.")
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the topic, with the broker's defaults, if it does not exist.")
    ] = False,
    json_: Json = False,
) -> int:
    """Write records to a topic: one for each MESSAGE, or one for each line of the input.

    Separators and formats may contain \\n, \\t, \\0 and \\xHH. --input json takes the output of `consume --json`.

    With --transactional-id, readers of committed records see all of a transaction or nothing. Invalid input, a refused
    record, Ctrl-C or a lost connection abort the open transaction. A producer that starts with the same id aborts the
    open transaction of an earlier one.

    Exit code 1: the broker refused a record. Earlier records were sent, unless their transaction was aborted.

    \b
    Examples:
      stratalog produce orders "first" "second" -b h:9092
      stratalog produce orders -K : -z zstd -b h:9092 < keyed.txt
      stratalog produce orders -f '%k %v' -H source=shop -b h:9092 < lines.txt
      stratalog produce orders --transactional-id import-7 -b h:9092 < all.txt
      stratalog consume orders --json -e -b h:9092 | \\
        stratalog produce copy --input json -b h:9092
    """
    like = OutgoingRecord(
        None,
        None if key is None else key.encode("utf-8", "surrogateescape"),
        parse_headers(header or (), "--header"),
        partition,
        None if timestamp is None else time_ms(timestamp, "--timestamp"),
    )
    parse = _parser(input_, like, format_, key_separator, empty_is_null)
    if key_schema is not None or value_schema is not None:
        if schema_registry is None:
            raise UsageError("--key-schema and --value-schema need --schema-registry URL")
        parse = SchemaParser(parse, SchemaRegistry(schema_registry), key_schema, value_schema)
    reader = _reader(input_, parse, unescaped(delimiter, "--delimiter"))
    settings = _settings(compression, acks, idempotence, batch_size, linger_ms)
    _check_transactional(transactional_id, transaction_records, settings)
    if messages and file:
        raise UsageError("give either MESSAGE.. or --file")
    if messages:
        stream = InputStream([message.encode("utf-8", "surrogateescape") for message in messages])
        reader = ChunkReader(parse)
    elif file and input_ is InputFormat.RAW:
        stream = _whole_files(file)
        reader = ChunkReader(parse)
    else:
        stream = _files(file) if file else _standard_input()
    options = servers.connection()

    from stratalog.cli.produce.sending import ProducerSettings, send_stream  # loads a client
    from stratalog.cli.produce.transactions import TransactionSettings
    from stratalog.cli.threads import run_to_end
    from stratalog.wire.client import Cluster

    with Cluster(options) as cluster:
        if create:
            create_topic(cluster, topic)
        try:
            partitions = named_topics(cluster, [topic])[topic].partitions
        except NothingFoundError as error:
            raise NothingFoundError(f"{error} (--create creates the topic)") from None
    if not messages and not file and sys.stdin.isatty():
        notice("type records, one per line; Ctrl-D ends")
    with _progress(stream.size) as advance:
        summary = run_to_end(
            send_stream(
                options,
                ProducerSettings(
                    **settings,
                    transactions=TransactionSettings(transactional_id, transaction_records, transaction_timeout_ms)
                    if transactional_id
                    else None,
                ),
                topic=topic,
                partitions=partitions,
                chunks=stream.chunks,
                reader=reader,
                records_max=num,
                advance=advance,
            )
        )
    by_partition = sorted(summary.partitions.items())
    if json_:
        rows = [
            {
                "partition": number,
                "records": each.records,
                "firstOffset": each.first_offset,
                "lastOffset": each.last_offset,
            }
            for number, each in by_partition
            if number >= 0
        ]
        print_json({"topic": topic, "records": summary.records, "partitions": rows})
    elif on_terminal():
        where = ", ".join(
            f"partition {number} at {_range(each.first_offset, each.last_offset)}"
            for number, each in by_partition
            if each.first_offset >= 0
        )
        print(f"{counted(summary.records, 'record')} to {topic}" + (f": {where}" if where else ""))
    return 0


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _parser(
    input_: InputFormat, like: OutgoingRecord, format_: str | None, key_separator: str | None, empty_is_null: bool
) -> RecordParser:
    if input_ is not InputFormat.LINES and (format_ is not None or key_separator is not None):
        raise UsageError(f"--format and --key-separator need --input lines, not {input_.value}")
    if input_ is InputFormat.JSON:
        return JsonParser(like)
    return FieldParser(
        like,
        key_separator=unescaped(key_separator or "", "--key-separator"),
        template=format_,
        empty_is_null=empty_is_null,
    )


def _reader(input_: InputFormat, parse: RecordParser, delimiter: bytes) -> RecordReader:
    if not delimiter:
        raise UsageError("--delimiter: expected at least one character")
    if input_ is InputFormat.RAW:
        return WholeReader(parse)
    return SizedReader(parse) if input_ is InputFormat.SIZED else DelimitedReader(delimiter, parse)


def _settings(
    compression: CodecName, acks: Acks, idempotence: bool | None, batch_size: int, linger_ms: int
) -> dict[str, Any]:
    if idempotence and acks is not Acks.ALL:
        raise UsageError(f"--idempotence needs --acks all, not {acks.value}")
    return {
        "codec": None if compression is CodecName.NONE else compression.value,
        "acks": {"0": 0, "1": 1, "all": -1}[acks.value],
        "is_idempotent": acks is Acks.ALL if idempotence is None else idempotence,
        "batch_bytes": batch_size,
        "linger_ms": linger_ms,
    }


def _check_transactional(transactional_id: str | None, records_max: int | None, settings: dict[str, Any]) -> None:
    if transactional_id is None:
        if records_max is not None:
            raise UsageError("--transaction-records needs --transactional-id ID")
        return
    if not transactional_id:
        raise UsageError("--transactional-id: expected at least one character")
    if not settings["is_idempotent"]:
        raise UsageError("--transactional-id needs --acks all and idempotence")


@dataclass(frozen=True, slots=True)
class InputStream:
    """Chunks of bytes, and their total size; 0 if unknown."""

    chunks: Iterable[bytes]
    size: int = 0


def _standard_input() -> InputStream:
    # unbuffered: a thread waiting for input would hold the buffer's lock at exit
    buffered = stdin_bytes()
    stream: Any = getattr(buffered, "raw", buffered)
    try:
        stats = os.fstat(stream.fileno())
        size = stats.st_size if stat.S_ISREG(stats.st_mode) else 0
    except OSError:
        size = 0
    return InputStream(iter(lambda: stream.read(_CHUNK_BYTES), b""), size)


def _files(paths: list[Path]) -> InputStream:
    def chunks() -> Iterator[bytes]:
        for path in paths:
            with path.open("rb", buffering=0) as file:  # unbuffered: a pipe would be read until the buffer is full
                yield from iter(lambda: file.read(_CHUNK_BYTES), b"")

    return InputStream(chunks(), sum(path.stat().st_size for path in paths))


def _whole_files(paths: list[Path]) -> InputStream:
    return InputStream((path.read_bytes() for path in paths), sum(path.stat().st_size for path in paths))


@contextmanager
def _progress(size: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar if the size is known, and yield the function that advances it."""
    progress = terminal_progress() if size else SILENT
    progress.begin("sending", size)
    try:
        yield progress.advance
    finally:
        progress.end()
