"""`stratalog spark restore`: topics out of a bucket, records and all, into a data directory or another bucket."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.broker.metadata import MetadataStore
from stratalog.cli.options import Json, RemoteOptions, Topics, key_values
from stratalog.cli.spark.options import remote_options, remote_url
from stratalog.cli.spark.session import Conf, Master, RemoteSession, spark_session
from stratalog.cli.tier import time_ms
from stratalog.config import INITIAL_LEVEL, LARGE_SEGMENTS_LEVEL, LogConfig
from stratalog.engine.dirs import is_served
from stratalog.errors import DataDirError, InvalidConfigError, UsageError
from stratalog.util import SYSTEM_CLOCK

if TYPE_CHECKING:
    from stratalog.jobs.restore import RestoredTopic, RestoreResult


def restore(
    remote: Annotated[
        str, typer.Option("--remote", metavar="URL", help="The bucket, in our layout or that of Aiven's plugin.")
    ],
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", metavar="DIR", help="A new or empty directory for the topics."),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="URL", help="Another bucket to copy to. It gets our layout.")
    ] = None,
    topic: Topics = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Restore the remote tier as of this time. Segments that were copied later are left out.",
        ),
    ] = None,
    topic_config: Annotated[
        list[str] | None,
        typer.Option(
            "--topic-config",
            metavar="KEY=VALUE",
            help="With --data-dir: set this on every topic.",
        ),
    ] = None,
    target_option: Annotated[
        list[str] | None,
        typer.Option(
            "--target-option",
            metavar="KEY=VALUE",
            help="An option of the target's store, as for --remote-option, or compression=zstd or "
            "encryption.key.file=FILE.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be done, and change nothing.")] = False,
    remote_option: RemoteOptions = None,
    master: Master = None,
    remote_session: RemoteSession = None,
    conf: Conf = None,
    as_json: Json = False,
) -> int:
    """Copy topics out of a bucket, in parallel, to a new data directory or into another bucket.

    In a data directory the topics are local and keep everything (retention.ms=-1) unless --topic-config says
    otherwise.

    Exit code 1: something that is named could not be restored.

    \b
    Examples:
      stratalog spark restore --remote s3://bucket/tiered --data-dir /var/lib/new --topic orders
      stratalog spark restore --remote s3://old/tiered \\
        --target s3://new/tiered --target-option compression=zstd
    """
    if (data_dir is None) == (target is None):
        raise UsageError("no target given: use --data-dir DIR or --target URL")
    options, url = remote_options(remote_option), remote_url(remote)
    assert url is not None
    topics = set(topic) if topic else None
    at_ms = None if at is None else time_ms(at, "--at")
    overrides = key_values("--topic-config", topic_config)
    LogConfig.from_properties(overrides, use_large_index_format=True)
    target_options = key_values("--target-option", target_option)
    from stratalog.jobs import terminal_progress
    from stratalog.jobs.restore import restore_to_bucket, restore_to_directory
    from stratalog.spark import SparkExecutor

    if data_dir is not None and is_served(data_dir):
        raise DataDirError(f"{data_dir} is in use by a broker; stop the broker first")
    with spark_session("stratalog restore", master, remote_session, conf) as spark:
        if data_dir is not None:
            result = restore_to_directory(
                url,
                data_dir,
                register=partial(_register, data_dir),
                remote_options=options,
                topics=topics,
                topic_config=overrides,
                at_ms=at_ms,
                dry_run=dry_run,
                executor=SparkExecutor(spark),
                progress=terminal_progress(),
            )
        else:
            assert target is not None
            result = restore_to_bucket(
                url,
                target if "://" in target else Path(target).absolute().as_uri(),
                remote_options=options,
                target_options=target_options,
                topics=topics,
                at_ms=at_ms,
                dry_run=dry_run,
                executor=SparkExecutor(spark),
                progress=terminal_progress(),
            )
    _tell(result, as_json)
    return 1 if result.problems else 0


def _tell(result: RestoreResult, as_json: bool) -> None:
    result.report().print(as_json=as_json)
    out = sys.stderr if as_json else sys.stdout
    for note in result.notes:
        print(f"note  {note}", file=out)
    for problem in result.problems:
        print(f"not restored  {problem}", file=out)


def _register(data_dir: Path, topics: Sequence[RestoredTopic], producer_id_max: int) -> None:
    """Make the topics known to the broker of the directory, at the level that they need."""
    store = MetadataStore.open(data_dir, metadata_version=_level(topics))
    try:
        for topic in topics:
            store.create_topic(
                topic.name,
                topic.partition_count,
                topic.configs,
                created_ms=SYSTEM_CLOCK.now_ms(),
                topic_id=topic.topic_id,
            )
        if producer_id_max >= 0:
            store.allocate_producer_ids(producer_id_max + 1)  # new producers get ids that were never used
    finally:
        store.close()


def _level(topics: Sequence[RestoredTopic]) -> int:
    try:
        for topic in topics:
            LogConfig.from_properties(topic.configs, None)
    except InvalidConfigError:
        return LARGE_SEGMENTS_LEVEL
    return INITIAL_LEVEL
