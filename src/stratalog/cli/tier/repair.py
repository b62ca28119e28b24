"""`stratalog tier repair`: audit, say what would be done, and with --apply do it and audit again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from stratalog.cli.missing import require_topics
from stratalog.cli.options import Grace, JsonLines, Topics
from stratalog.cli.out import notice
from stratalog.cli.tier.audit import DeepOption, ReadersOption, exit_code, run_audit
from stratalog.cli.tier.data_dirs import DataDirOption, open_data_dirs
from stratalog.cli.tier.output import AuditOutput
from stratalog.cli.tier.owner import identity_of
from stratalog.cli.tier.store import BucketOptions, topics_in
from stratalog.cli.tier.times import span_ms
from stratalog.errors import RemoteStorageError
from stratalog.jobs.audit import AuditOptions, RepairPlan, carry_out, plan_repair, store_time_ms
from stratalog.log.recovery import hold_all
from stratalog.remote.ownership import OwnershipFile, check_no_owner, check_owner
from stratalog.remote.storage import ObjectStore, S3Uploads
from stratalog.remote.transactions import finish_publications
from stratalog.util import SYSTEM_CLOCK

_WHAT = "tier repair --apply"


def repair(
    bucket: BucketOptions,
    data_dir: DataDirOption = None,
    apply: Annotated[bool, typer.Option("--apply", help="Carry out the plan. Default: change nothing.")] = False,
    deep: DeepOption = False,
    topic: Topics = None,
    grace: Grace = "24h",
    readers: ReadersOption = 4,
    as_json: JsonLines = False,
) -> int:
    """Audit a bucket and repair what can be repaired safely. Without --apply, only report what would be done.

    Repair deletes leftovers of copies and deletions that no metadata refers to, rebuilds damaged indexes from the
    records, and writes a missing manifest that metadata and objects prove. It never touches what is younger than
    --grace by the store's own clock, nor a segment that can be read. With --apply, no broker may have the directory
    of --data-dir open.

    Exit code 0: valid, or notes only. After --apply: nothing else is left.
    Exit code 1: errors or warnings are left.
    Exit code 2: the bucket cannot be read or written, and nothing was changed.

    \b
    Examples:
      stratalog tier repair s3://bucket/tiered --data-dir /var/lib/stratalog
      stratalog tier repair s3://bucket/tiered --data-dir /var/lib/stratalog --deep --apply
    """
    url = bucket.given_url
    output = AuditOutput(as_json=as_json)
    grace_ms = span_ms(grace, "--grace")
    store, uploads = bucket.open(), bucket.open_uploads()
    require_topics(topic, lambda: topics_in(store), url)
    data_dirs = open_data_dirs(data_dir)
    with hold_all(data_dir or () if apply else ()):  # their metadata say what may be deleted
        if apply:
            _check_owner(store, data_dir)
        now_ms = store_time_ms(store) if apply else SYSTEM_CLOCK.now_ms()
        if apply:
            finish_publications(store)
        options = AuditOptions(now_ms, grace_ms, set(topic) if topic else None, deep)
        result = run_audit(store, options, data_dirs, output, uploads, readers)
        plan = plan_repair(result.findings, now_ms, grace_ms)
        if result.findings:
            output.plan(plan, apply=apply)
        if apply and plan.mends:
            sys.stdout.flush()
            _carry_out(store, plan, output, uploads, data_dir)
            options = replace(options, now_ms=store_time_ms(store))
            result = run_audit(store, options, data_dirs, output, uploads, readers)
        elif plan.mends:
            notice("nothing was changed; use --apply to carry out the plan")
    return exit_code(result)


def _check_owner(store: ObjectStore, data_dir: Sequence[Path] | None) -> None:
    """Raise NotOwnerError unless the bucket has no owner, or the cluster whose metadata was given owns it."""
    if not data_dir:
        check_no_owner(store, _WHAT, instead="stop that cluster's broker and give its --data-dir")
        return
    known = frozenset[str]().union(*(OwnershipFile(each).all_incarnations for each in data_dir))
    for directory in data_dir:
        check_owner(store, _WHAT, identity_of(directory)[0], f"{directory} belongs", incarnations=known)


def _carry_out(
    store: ObjectStore,
    plan: RepairPlan,
    output: AuditOutput,
    uploads: S3Uploads | None,
    data_dir: Sequence[Path] | None,
) -> None:
    """Carry out the plan action by action. Prints what cannot be done; the audit that follows finds it again."""
    for planned in plan.mends:
        try:
            _check_owner(store, data_dir)
            mended = carry_out(store, planned.mend, uploads)
        except RemoteStorageError as error:
            output.done(planned, "", str(error))
        else:
            output.done(planned, mended.text, None)
