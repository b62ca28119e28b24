"""`stratalog spark ingest`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stratalog import jobs
from stratalog.cli.options import Json, RemoteOptions, key_values
from stratalog.cli.spark.options import data_dirs, remote_options, remote_url
from stratalog.cli.spark.session import SessionOptions


def ingest(
    *,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic. It is created if it does not exist.")],
    files: Annotated[
        list[str], typer.Argument(metavar="FILES..", help="Files, directories or globs that Spark can read.")
    ],
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir", "--path", metavar="DIR", help="Load into this data directory. No broker may be serving it."
        ),
    ] = None,
    remote: Annotated[
        str | None,
        typer.Option("--remote", metavar="URL", help="Load into this bucket: s3://bucket/prefix, file:///directory."),
    ] = None,
    remote_option: RemoteOptions = None,
    file_format: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="Format of the files: parquet, json, csv, orc or text.")
    ] = "parquet",
    read_option: Annotated[
        list[str] | None,
        typer.Option(
            "--read-option",
            metavar="KEY=VALUE",
            help="An option of Spark's reader, such as header or sep.",
        ),
    ] = None,
    schema: Annotated[str | None, typer.Option(metavar="DDL", help="Columns of the files. Default: inferred.")] = None,
    key: Annotated[str | None, typer.Option(metavar="SQL", help="The key, as an expression over the columns.")] = None,
    value: Annotated[str | None, typer.Option(metavar="SQL", help="The value. Default: the row as JSON.")] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="The timestamp: a time, a date, text or milliseconds. Default: now."),
    ] = None,
    headers: Annotated[
        str | None, typer.Option(metavar="SQL", help="The headers, of type array<struct<key:string,value:binary>>.")
    ] = None,
    partition: Annotated[
        str | None, typer.Option(metavar="SQL", help="The partition. Default: the hash of the key.")
    ] = None,
    partitions: Annotated[int | None, typer.Option(metavar="N", help="Number of partitions of a new topic.")] = None,
    codec: Annotated[str, typer.Option(metavar="CODEC", help="Compression: none, gzip, snappy, lz4 or zstd.")] = "none",
    segment_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Size at which segments are rolled, such as 512m.")
    ] = None,
    sink_option: Annotated[
        list[str] | None,
        typer.Option(
            "--sink-option",
            metavar="KEY=VALUE",
            help="An option of the sink: level, batchBytes or indexFormat.",
        ),
    ] = None,
    sort_by_time: Annotated[
        bool,
        typer.Option("--sort-by-time", help="Assign offsets in the order of timestamps, not of files and rows."),
    ] = False,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|URL", help="Where to record which files were loaded. Only new files are loaded, each once."
        ),
    ] = None,
    files_per_round: Annotated[
        int, typer.Option(metavar="N", min=1, help="Largest number of files to publish in one step.")
    ] = 128,
    direct: Annotated[
        bool,
        typer.Option("--direct/--no-direct", help="Let tasks read Parquet files without Spark's reader."),
    ] = True,
    session: SessionOptions,
    as_json: Json = False,
) -> int:
    """Load files into a topic of a data directory or bucket, without a broker.

    Each round of files becomes visible in one step.

    \b
    Examples:
      stratalog spark ingest flights /lake/flights --data-dir /var/lib/stratalog \\
        --key tailnum --timestamp time_hour
      stratalog spark ingest events '/lake/events/2024-*' --format json \\
        --remote s3://bucket/tiered --state /var/lib/ingest
      stratalog spark ingest prices prices.csv --format csv \\
        --read-option header=true --value price --data-dir /data
    """
    sink: dict[str, str | int | bool] = {"codec": codec, **key_values("--sink-option", sink_option)}
    if data_dir is not None:
        sink["path"] = data_dirs([data_dir])[0]
    if remote is not None:
        sink["remote"] = str(remote_url(remote))
        sink |= {f"remote.{name}": text for name, text in remote_options(remote_option).items()}
    if partitions is not None:
        sink["partitions"] = partitions
    if segment_bytes is not None:
        sink["segmentBytes"] = segment_bytes

    from stratalog.spark import ingest as pipeline  # --help does without
    from stratalog.spark.sink import SinkOptions

    SinkOptions.parse({name: str(text) for name, text in sink.items()})  # before a session is started
    with session.open("stratalog spark ingest") as spark:
        result = pipeline.ingest(
            spark,
            files,
            topic,
            sink=sink,
            rows=pipeline.Rows(value, key, timestamp, headers, partition),
            file_format=file_format,
            read_options=key_values("--read-option", read_option),
            schema=schema,
            sort_by_time=sort_by_time,
            state=None if state is None else jobs.State(state, remote_options(remote_option)),
            files_per_round=files_per_round,
            direct=direct,
            progress=jobs.terminal_progress(),
        )
    result.report().print(as_json=as_json)
    return 1 if result.changed else 0
