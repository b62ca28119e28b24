"""`stratalog spark stats`: what is in topics, and what other codecs would make of it."""

from __future__ import annotations

from typing import Annotated

import typer

from stratalog import jobs
from stratalog.cli.options import Json, TopicIds
from stratalog.cli.spark.options import JobInputs, topic_ids
from stratalog.cli.spark.session import SessionOptions


def stats(
    inputs: JobInputs,
    *,
    topic_id: TopicIds = None,
    segments: Annotated[bool, typer.Option("--segments", help="Print a line for each segment.")] = False,
    codecs: Annotated[
        bool, typer.Option("--codecs", help="Compress samples with every codec, and report size and speed.")
    ] = False,
    keys: Annotated[
        bool, typer.Option("--keys", help="Count distinct keys too. This is an estimate and reads all keys.")
    ] = False,
    sample_bytes: Annotated[
        int, typer.Option("--sample-bytes", min=0, metavar="BYTES", help="Bytes to read from each segment.")
    ] = 1024 * 1024,
    session: SessionOptions,
    as_json: Json = False,
) -> int:
    """Measure batch sizes, codecs, compression, time order and keys.

    Exit code 1: a segment could not be read completely.

    \b
    Examples:
      stratalog spark stats --data-dir /var/lib/stratalog
      stratalog spark stats --data-dir /var/lib/stratalog --topic orders --codecs
      stratalog spark stats --remote s3://bucket/tiered --segments --keys --json
    """
    where = inputs.places()
    ids = topic_ids(topic_id)
    from stratalog.spark.pipelines.stats import stats as run_stats  # --help does without

    with session.open("stratalog stats") as spark:
        found = run_stats(
            spark,
            **where.arguments(),
            topic_ids=ids,
            keys=keys,
            sample_bytes=sample_bytes,
            progress=jobs.terminal_progress(),
        )
    report = found.what_if() if codecs else found.by_segment() if segments else found.by_topic()
    report.print(as_json=as_json)
    return 1 if found.damaged else 0
