"""`stratalog spark audit`: every segment of directories and buckets checked, and what to do about what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stratalog.cli.fsck import held
from stratalog.cli.options import DataDirs, Json, Remote, RemoteOptions, Topics
from stratalog.cli.spark.options import places
from stratalog.cli.spark.session import Conf, Master, RemoteSession, spark_session
from stratalog.cli.tier import span_ms
from stratalog.util import REAL_FILESYSTEM


def audit(
    data_dir: DataDirs = None,
    remote: Remote = None,
    topic: Topics = None,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="DIR|URL", help="Where to record valid segments. They are not read again."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="URL", help="Also write the findings to this place, as Parquet.")
    ] = None,
    grace: Annotated[
        str,
        typer.Option(
            "--grace", metavar="SPAN", help="Ignore what is younger, because it may be in progress: 30m, 24h, 7d."
        ),
    ] = "24h",
    remote_option: RemoteOptions = None,
    master: Master = None,
    remote_session: RemoteSession = None,
    conf: Conf = None,
    as_json: Json = False,
) -> int:
    """Check every segment: CRCs of batches, order, lineage, gaps, overlaps, orphans, missing objects, metadata.

    Log directories must not be served during the check; a bucket may be in use. Nothing is changed: `stratalog fsck
    --repair` and `stratalog tier repair` do what is proposed.

    Exit code 1: errors or warnings.

    \b
    Examples:
      stratalog spark audit --data-dir /var/lib/stratalog
      stratalog spark audit --remote s3://bucket/tiered --state /var/lib/audit --json
      stratalog spark audit --data-dir /var/lib/stratalog \\
        --remote s3://bucket/tiered --output /tmp/findings
    """
    where = places(data_dir, remote, remote_option, topic)
    grace_ms = span_ms(grace, "--grace")
    from stratalog.jobs import State, terminal_progress
    from stratalog.jobs.audit import audit as run_audit
    from stratalog.spark import SparkExecutor, audit_frame

    kept = None if state is None else State(state, where.remote_options)
    with (
        held([Path(each) for each in where.paths], REAL_FILESYSTEM, exclusively=False),
        spark_session("stratalog audit", master, remote_session, conf) as spark,
    ):
        result = run_audit(
            **where.arguments(),
            executor=SparkExecutor(spark),
            state=kept,
            grace_ms=grace_ms,
            progress=terminal_progress(),
        )
        if output is not None:
            audit_frame(spark, result).write.mode("overwrite").parquet(output)
    result.report().print(as_json=as_json)
    return 1 if result.problems else 0
