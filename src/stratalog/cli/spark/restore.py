"""`stratalog spark restore`: topics out of a bucket, records and all, into a data directory or another bucket."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from stratalog import jobs
from stratalog.broker.metadata import MetadataStore
from stratalog.cli.options import Json, PlanOnly, RemoteOptions, RestoredConfigs, RestoreTime, Topics, key_values
from stratalog.cli.restored_topics import add_topics, level_for, require_not_served
from stratalog.cli.spark.options import remote_options, remote_url
from stratalog.cli.spark.session import SessionOptions, print_result
from stratalog.cli.tier import time_ms
from stratalog.config import LogConfig
from stratalog.errors import UsageError
from stratalog.jobs.restore import RestoredTopic


def restore(
    *,
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
    at: RestoreTime = None,
    topic_config: RestoredConfigs = None,
    target_option: Annotated[
        list[str] | None,
        typer.Option(
            "--target-option",
            metavar="KEY=VALUE",
            help="An option of the target's store, as for --remote-option, or compression=zstd or "
            "encryption.key.file=FILE.",
        ),
    ] = None,
    dry_run: PlanOnly = False,
    remote_option: RemoteOptions = None,
    session: SessionOptions,
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
    overrides = key_values("--topic-config", topic_config)
    LogConfig.from_properties(overrides, use_large_index_format=True)
    target_options = key_values("--target-option", target_option)
    if data_dir is not None:
        require_not_served(data_dir)
        run = partial(
            jobs.restore_to_directory,
            url,
            data_dir,
            register=partial(_register, data_dir),
            topic_config=overrides,
        )
    else:
        assert target is not None
        run = partial(
            jobs.restore_to_bucket,
            url,
            target if "://" in target else Path(target).absolute().as_uri(),
            target_options=target_options,
        )
    at_ms = None if at is None else time_ms(at, "--at")
    with session.executor("stratalog restore") as executor:
        result = run(
            remote_options=options,
            topics=set(topic) if topic else None,
            at_ms=at_ms,
            dry_run=dry_run,
            executor=executor,
            progress=jobs.terminal_progress(),
        )
    code = print_result(result, as_json=as_json)
    out = sys.stderr if as_json else sys.stdout
    for note in result.notes:
        print(f"note  {note}", file=out)
    for problem in result.problems:
        print(f"not restored  {problem}", file=out)
    return code


def _register(data_dir: Path, topics: Sequence[RestoredTopic], producer_id_max: int) -> None:
    """Register the topics with the directory's broker, at the level that they need."""
    with closing(MetadataStore.open(data_dir, metadata_version=level_for(topics))) as store:
        add_topics(store, topics)
        store.reserve_producer_ids(producer_id_max)
