"""`stratalog spark compact`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog import jobs
from stratalog.cli.options import CommandConfig, DataDirs, Json, PlanOnly, Remote, RemoteOptions, key_values
from stratalog.cli.spark.options import data_dirs, remote_options, remote_url, with_login
from stratalog.cli.spark.session import SessionOptions
from stratalog.cli.tier import span_ms
from stratalog.cli.topic_configs import stored_configs
from stratalog.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stratalog.jobs.compaction import CompactResult


def compact(
    *,
    topics: Annotated[
        str | None,
        typer.Argument(metavar="[TOPICS]", help="Topics, separated by commas. Required with --remote."),
    ] = None,
    data_dir: DataDirs = None,
    remote: Remote = None,
    remote_option: RemoteOptions = None,
    kafka: Annotated[
        list[str] | None,
        typer.Option(
            "--kafka",
            metavar="KEY=VALUE",
            help="How to reach the brokers that serve the bucket: bootstrap.servers, security.protocol, ...",
        ),
    ] = None,
    command_config: CommandConfig = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="KEY=VALUE",
            help="Override a setting of the topics: delete.retention.ms, segment.bytes, ...",
        ),
    ] = None,
    min_dirty_ratio: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Skip partitions with a smaller share of uncompacted bytes."),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(metavar="DIR|URL", help="With --remote: where to record how far each partition is clean."),
    ] = None,
    grace: Annotated[
        str,
        typer.Option(
            metavar="SPAN", help="With --remote: how long to keep old objects after the new ones are visible."
        ),
    ] = "1m",
    dry_run: PlanOnly = False,
    session: SessionOptions,
    as_json: Json = False,
) -> int:
    """Compact topics: keep the newest record of each key in sealed segments, as the log cleaner does.

    With --data-dir, no broker may serve the log directories. With --remote, topics in a bucket are compacted, tiered
    ones too, also while brokers serve them (--kafka).

    \b
    Examples:
      stratalog spark compact --data-dir /var/lib/stratalog --dry-run
      stratalog spark compact prices --data-dir /var/lib/stratalog --config delete.retention.ms=0
      stratalog spark compact prices --remote s3://bucket/tiered \\
        --kafka bootstrap.servers=localhost:9092
    """
    from stratalog.jobs.compaction import topic_config  # --help does without
    from stratalog.spark import SparkExecutor

    if (data_dir is None) == (remote is None):
        raise UsageError("give either --data-dir, for log directories, or --remote, for a bucket")
    names = None if topics is None else [name.strip() for name in topics.split(",") if name.strip()]
    overrides = key_values("--config", config)
    if data_dir is not None:
        _refuse({"--kafka": kafka, "--state": state, "--remote-option": remote_option}, "--remote")
        if min_dirty_ratio is not None:
            overrides["min.cleanable.dirty.ratio"] = str(min_dirty_ratio)
    elif not names:
        raise UsageError("no topics given: name the topics of the bucket to compact")
    topic_config(overrides)  # before a session is started
    grace_seconds = span_ms(grace, "--grace") / 1000
    directories, url = data_dirs(data_dir), remote_url(remote)
    store_options = remote_options(remote_option)

    def run(spark: SparkSession) -> CompactResult:
        if url is None:
            return jobs.compact_data_dirs(
                directories,
                topics=names,
                configs=stored_configs(Path(each) for each in directories),
                overrides=overrides,
                only_due=min_dirty_ratio is not None,
                dry_run=dry_run,
                executor=SparkExecutor(spark),
                progress=jobs.terminal_progress(),
            )
        return jobs.compact_bucket(
            url,
            topics=names or [],
            options=store_options,
            overrides=overrides,
            min_dirty_ratio=min_dirty_ratio or 0.0,
            state=None if state is None else jobs.State(state, store_options),
            kafka=_kafka(kafka, command_config),
            grace_seconds=grace_seconds,
            dry_run=dry_run,
            executor=SparkExecutor(spark),
            progress=jobs.terminal_progress(),
        )

    with session.open("stratalog compact") as spark:
        result = run(spark)
    result.report().print(as_json=as_json)
    return 0


def _refuse(given: dict[str, object], needed: str) -> None:
    for option, value in given.items():
        if value is not None:
            raise UsageError(f"{option} needs {needed}")


def _kafka(texts: list[str] | None, command_config: Path | None) -> dict[str, str] | None:
    """Properties under the names that the source has for them. UsageError."""
    if not texts:
        return None
    found = with_login(command_config) | {
        f"kafka.{key.removeprefix('kafka.')}": value for key, value in key_values("--kafka", texts).items()
    }
    if "kafka.bootstrap.servers" not in found:
        raise UsageError("--kafka needs bootstrap.servers=HOST:PORT")
    return found
