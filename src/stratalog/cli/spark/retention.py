"""`stratalog spark retention`: what is deleted when, for all topics at once, also with other settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stratalog import jobs
from stratalog.cli.options import (
    AssumedTime,
    CheckInterval,
    Json,
    WhatIf,
    key_values,
)
from stratalog.cli.spark.options import JobInputs
from stratalog.cli.spark.session import SessionOptions
from stratalog.cli.tier import span_ms, time_ms
from stratalog.cli.topic_configs import stored_configs
from stratalog.jobs.retention import Rhythm


def retention(
    inputs: JobInputs,
    *,
    what_if: WhatIf = None,
    at: AssumedTime = None,
    segments: Annotated[
        bool, typer.Option("--segments", help="Print a line for each segment, with the reason why it is kept.")
    ] = False,
    check_interval: CheckInterval = "5m",
    session: SessionOptions,
    as_json: Json = False,
) -> int:
    """Forecast what retention deletes and when, in both tiers, and what it would delete with other settings.

    Nothing is changed. The settings of topics come from the broker's file in the data directory, or from the bucket.

    \b
    Examples:
      stratalog spark retention --data-dir /var/lib/stratalog
      stratalog spark retention --data-dir /var/lib/stratalog --what-if retention.ms=86400000
      stratalog spark retention --remote s3://bucket/tiered --topic orders --segments --json
    """
    where = inputs.places()
    tried = key_values("--what-if", what_if)
    at_ms = None if at is None else time_ms(at, "--at")
    rhythm = Rhythm(span_ms(check_interval, "--check-interval"))
    with session.executor("stratalog retention") as executor:
        found = jobs.forecast_retention(
            **where.arguments(),
            configs=stored_configs(Path(each) for each in where.paths),
            what_if=tried,
            at_ms=at_ms,
            rhythm=rhythm,
            executor=executor,
            progress=jobs.terminal_progress(),
        )
    (found.by_segment() if segments else found.by_topic()).print(as_json=as_json)
    return 0
