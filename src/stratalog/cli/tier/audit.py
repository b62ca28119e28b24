"""`stratalog tier audit`: everything that is wrong with a bucket, and what to do about it. Nothing is changed."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from stratalog.cli.missing import require_topics
from stratalog.cli.options import Grace, JsonLines, Topics
from stratalog.cli.out import notice
from stratalog.cli.tier.data_dirs import DataDirOption, open_data_dirs
from stratalog.cli.tier.output import AuditOutput
from stratalog.cli.tier.store import BucketOptions, topics_in
from stratalog.cli.tier.times import span_ms
from stratalog.errors import RemoteStorageError
from stratalog.inspect import DataDirSet
from stratalog.jobs import Severity, Threads, terminal_progress
from stratalog.jobs.audit import AuditOptions, BucketAudit, ObjectFinding, audit_bucket, audit_uploads
from stratalog.remote.storage import ObjectStore, S3Uploads
from stratalog.util import SYSTEM_CLOCK

DeepOption = Annotated[
    bool,
    typer.Option("--deep", help="Read every object, and check checksums, CRCs of batches, and index entries."),
]
ReadersOption = Annotated[
    int,
    typer.Option(
        "--readers", min=1, help="With --deep: segments to read at the same time. Each takes 8 MiB of memory."
    ),
]


def audit(
    bucket: BucketOptions,
    data_dir: DataDirOption = None,
    deep: DeepOption = False,
    topic: Topics = None,
    grace: Grace = "24h",
    readers: ReadersOption = 4,
    as_json: JsonLines = False,
) -> int:
    """Find what is orphaned, missing, overlapping, damaged, unreferenced, a gap or of another lineage in a bucket.

    With --data-dir the objects are also compared with the broker's metadata and local logs. The broker may run.

    Exit code 0: valid, or notes only.
    Exit code 1: errors or warnings.
    Exit code 2: the bucket cannot be read.

    \b
    Examples:
      stratalog tier audit s3://bucket/tiered
      stratalog tier audit s3://bucket/tiered --data-dir /var/lib/stratalog --deep
      stratalog tier audit file:///mnt/tiered --topic flights --json
    """
    url = bucket.given_url
    output = AuditOutput(as_json=as_json)
    grace_ms = span_ms(grace, "--grace")
    options = AuditOptions(SYSTEM_CLOCK.now_ms(), grace_ms, set(topic) if topic else None, deep)
    store, uploads = bucket.open(), bucket.open_uploads()
    require_topics(topic, lambda: topics_in(store), url)
    result = run_audit(store, options, open_data_dirs(data_dir), output, uploads, readers)
    return exit_code(result)


def run_audit(
    store: ObjectStore,
    options: AuditOptions,
    data_dirs: DataDirSet | None,
    output: AuditOutput,
    uploads: S3Uploads | None,
    readers: int,
) -> BucketAudit:
    """Audit the bucket and print the findings."""
    started = time.monotonic()
    result = audit_bucket(store, options, data_dirs, executor=Threads(readers), progress=terminal_progress())
    if uploads is not None:
        result.findings += _unfinished(uploads, options)
    output.findings(result.findings)
    output.summary(result, time.monotonic() - started)
    return result


def _unfinished(uploads: S3Uploads, options: AuditOptions) -> list[ObjectFinding]:
    """Return unfinished uploads. Print a line if the store refuses to list them: that needs its own permission."""
    now_ms, grace_ms = options.now_ms, options.grace_ms
    try:
        return list(audit_uploads(uploads.list(), now_ms=now_ms, grace_ms=grace_ms, topics=options.topics))
    except RemoteStorageError as error:
        notice(f"unfinished uploads could not be listed: {error}")
        return []


def exit_code(result: BucketAudit) -> int:
    """Return 1 if there is more than notes, else 0."""
    return 1 if any(one.severity > Severity.NOTE for one in result.findings) else 0
