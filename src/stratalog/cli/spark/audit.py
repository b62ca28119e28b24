"""`stratalog spark audit`: every segment of directories and buckets checked, and what to do about what is wrong."""

from __future__ import annotations

from typing import Annotated

import typer

from stratalog import jobs
from stratalog.cli.options import Grace, Json
from stratalog.cli.spark.options import JobInputs
from stratalog.cli.spark.session import SessionOptions, print_result
from stratalog.cli.tier import span_ms


def audit(
    inputs: JobInputs,
    *,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="DIR|URL", help="Where to record valid segments. They are not read again."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="URL", help="Also write the findings to this place, as Parquet.")
    ] = None,
    grace: Grace = "24h",
    session: SessionOptions,
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
    where = inputs.places()
    grace_ms = span_ms(grace, "--grace")
    from stratalog.jobs.audit import audit as run_audit  # loads numpy

    kept = None if state is None else jobs.State(state, where.remote_options)
    with where.held(for_check=True), session.executor("stratalog audit") as executor:
        result = run_audit(
            **where.arguments(),
            executor=executor,
            state=kept,
            grace_ms=grace_ms,
            progress=jobs.terminal_progress(),
        )
        if output is not None:
            from stratalog.spark import audit_frame  # --help does without

            audit_frame(executor.spark, result).write.mode("overwrite").parquet(output)
    return print_result(result, as_json=as_json)
