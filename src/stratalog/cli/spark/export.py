"""`stratalog spark export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog import jobs
from stratalog.cli.options import CommandConfig, DataDirs, Json, Remote, RemoteOptions, TopicIds, key_values
from stratalog.cli.spark.options import data_dirs, remote_options, remote_url, with_login
from stratalog.cli.spark.session import SessionOptions
from stratalog.errors import UsageError

if TYPE_CHECKING:
    from stratalog.spark.export import Decoding


def export(
    *,
    topics: Annotated[str, typer.Argument(metavar="TOPICS", help="Topics, separated by commas.")],
    to: Annotated[
        str,
        typer.Option("--to", metavar="TABLE", help="A directory, the URL of an object store, or a table of a catalog."),
    ],
    data_dir: DataDirs = None,
    remote: Remote = None,
    remote_option: RemoteOptions = None,
    topic_id: TopicIds = None,
    command_config: CommandConfig = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="KEY=VALUE",
            help="An option of the source: startingTimestamp, isolationLevel, kafka.bootstrap.servers.",
        ),
    ] = None,
    table_format: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="Format of the table: parquet, delta or iceberg.")
    ] = "parquet",
    to_option: Annotated[
        list[str] | None,
        typer.Option("--to-option", metavar="KEY=VALUE", help="An option of the object store of --to."),
    ] = None,
    partition_by: Annotated[
        str, typer.Option(metavar="COLUMNS", help="Partition columns: some of date, hour, topic, partition; or none.")
    ] = "date",
    headers: Annotated[bool, typer.Option("--headers", help="Add a column with headers.")] = False,
    decode: Annotated[str | None, typer.Option(metavar="KIND", help="Decode values: json, avro or protobuf.")] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT|@FILE",
            help="JSON: columns as DDL (default: inferred). Avro: the schema. Protobuf: @FILE of descriptors.",
        ),
    ] = None,
    confluent: Annotated[
        bool, typer.Option("--confluent", help="Avro: skip the 5-byte prefix of Confluent's serializers.")
    ] = False,
    schema_id: Annotated[
        int | None, typer.Option(metavar="ID", help="Avro with --confluent: decode only values with this schema id.")
    ] = None,
    message: Annotated[
        str | None, typer.Option(metavar="NAME", help="Protobuf: the message type, package.Name.")
    ] = None,
    offsets_per_commit: Annotated[
        int | None,
        typer.Option(metavar="N", help="Commit after this many offsets of each partition. Default: once, at the end."),
    ] = None,
    session: SessionOptions,
    as_json: Json = False,
) -> int:
    """Append the new records of topics to a Parquet, Delta or Iceberg table, each record exactly once.

    \b
    Examples:
      stratalog spark export orders --data-dir /var/lib/stratalog --to /lake/orders
      stratalog spark export orders,returns --remote s3://bucket/tiered \\
        --to s3://lake/events --partition-by topic,date
      stratalog spark export orders --data-dir /data --to /lake/orders \\
        --decode json --schema 'id BIGINT, total DOUBLE'
    """
    decoding = _decoding(decode, schema, confluent, schema_id, message)
    source: dict[str, str | int | bool] = {"subscribe": topics, "includeHeaders": headers}
    if data_dir:
        source["path"] = ",".join(data_dirs(data_dir))
    if remote is not None:
        source["remote"] = str(remote_url(remote))
        source |= {f"remote.{name}": value for name, value in remote_options(remote_option).items()}
    if topic_id:
        source["topicId"] = ",".join(topic_id)
    source |= with_login(command_config) | key_values("--option", option)
    columns = () if partition_by in ("", "none") else tuple(name.strip() for name in partition_by.split(","))
    to = str(Path(to).absolute()) if table_format == "parquet" and "://" not in to else to

    from stratalog.spark import export as pipeline  # --help does without
    from stratalog.spark.options import ReadOptions

    ReadOptions.parse({name: str(value) for name, value in source.items()})  # before a session is started
    pipeline.ExportLayout.of(columns)
    with session.open("stratalog spark export") as spark:
        result = pipeline.export(
            spark,
            source=source,
            to=to,
            table_format=table_format,
            partition_by=columns,
            decode=decoding,
            offsets_per_commit=offsets_per_commit,
            target_options=key_values("--to-option", to_option),
            progress=jobs.terminal_progress(),
        )
    result.report().print(as_json=as_json)
    return 0


def _decoding(
    kind: str | None, schema: str | None, confluent: bool, schema_id: int | None, message: str | None
) -> Decoding | str | None:
    """Return the decoder that `--decode` and its companions describe. Raises UsageError."""
    from stratalog.spark.export import Avro, Json, Protobuf, checked_avro_schema  # as above

    given = [
        name
        for name, is_given in (
            ("--schema", schema is not None),
            ("--confluent", confluent),
            ("--schema-id", schema_id is not None),
            ("--message", message is not None),
        )
        if is_given
    ]
    allowed = {
        None: [],
        "json": ["--schema"],
        "avro": ["--schema", "--confluent", "--schema-id"],
        "protobuf": ["--schema", "--message"],
    }
    if kind not in allowed:
        raise UsageError(f"--decode {kind}: expected json, avro or protobuf")
    if surplus := [name for name in given if name not in allowed[kind]]:
        raise UsageError(f"{surplus[0]} {'needs --decode' if kind is None else f'cannot be used with --decode {kind}'}")
    if kind == "json":
        return "json" if schema is None else Json(_text(schema).decode())
    if kind == "avro":
        return Avro(checked_avro_schema(_text(_needed(kind, schema)).decode()), confluent, schema_id)
    if kind == "protobuf":
        if message is None:
            raise UsageError("--decode protobuf needs --message")
        return Protobuf(message, _text(_needed(kind, schema)))
    return None


def _needed(kind: str, schema: str | None) -> str:
    if schema is None:
        raise UsageError(f"--decode {kind} needs --schema")
    return schema


def _text(value: str) -> bytes:
    """Return the option itself, or what is in `@FILE`. Raises UsageError."""
    if not value.startswith("@"):
        return value.encode()
    try:
        return Path(value[1:]).read_bytes()
    except OSError as error:
        raise UsageError(f"--schema {value}: {error.strerror or error}") from error
