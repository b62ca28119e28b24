"""Indexes of a bucket: a task a segment. The manifest is rewritten last, with the new checksum.

Encrypted segments and those of Aiven's layout are verified like all others, with the keys that the options name, and
are never written: what would have to be is SKIPPED.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from stratalog.errors import RemoteStorageError, RetriableRemoteStorageError, UsageError
from stratalog.inspect import list_remote_segments
from stratalog.jobs.audit import Kind, RemakeIndexes, carry_out, read_segment, remake
from stratalog.jobs.index import convert_index, why_untouchable
from stratalog.log.format import format_of
from stratalog.log.index import txn_index
from stratalog.remote.ownership import check_directories
from stratalog.remote.storage import ObjectKind, PlainView, SegmentManifest, object_key, open_bucket, read_manifest
from stratalog.spark.pipelines.index_rows import IndexChange, Outcome
from stratalog.spark.pipelines.progress import Progress
from stratalog.spark.pipelines.runner import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INDEXES: Final = (ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX, ObjectKind.TXN_INDEX)


@dataclass(frozen=True, slots=True)
class _Task:
    url: str
    options: dict[str, str] = field(hash=False)
    manifest_key: str
    size: int
    action: str
    entry_size: int | None
    only_damaged: bool
    is_dry: bool
    incarnations: frozenset[str] | None

    def __str__(self) -> str:
        return f"{self.url}/{self.manifest_key}"


def check_may_write(url: str, options: Mapping[str, str], action: str, incarnations: frozenset[str] | None) -> None:
    """Raise NotOwnerError for a bucket of somebody else, before a directory is changed.

    `change_remote` looks closer.
    """
    check_directories(open_bucket(url, options).inner, _what(action), incarnations)


def change_remote(
    spark: SparkSession,
    url: str,
    options: Mapping[str, str],
    topics: Collection[str] | None,
    progress: Progress,
    *,
    action: str,
    entry_size: int | None = None,
    only_damaged: bool = False,
    is_dry: bool = False,
    incarnations: frozenset[str] | None = None,
) -> tuple[list[IndexChange], int]:
    """Verify, rebuild or convert every segment's indexes; and how many segments there are.

    A conversion is tried first everywhere, and with a position that does not fit (UsageError) or a damaged index
    nothing is written. `incarnations` are those of the stopped data directory of the cluster that owns the bucket:
    brokers that run might delete a segment whose manifest is being put. NotOwnerError without them, for what is
    written.
    """
    store = open_bucket(url, options).inner
    manifests = list_remote_segments(store, topics, covered=True)
    if _writes(action, is_dry):
        changed = [each for each in manifests if why_untouchable(each) is None]
        check_directories(store, _what(action), incarnations, changed)
    tasks = _tasks(
        url, options, manifests, action, entry_size, only_damaged, is_dry or action == "convert", incarnations
    )
    changes = _run(spark, tasks, f"{action} indexes", progress)
    misfits = [change for change in changes if change.outcome is Outcome.MISFIT]
    if misfits:
        raise UsageError(
            f"{misfits[0].place}: {misfits[0].detail} ({len(misfits)} such indexes); nothing was converted"
        )
    damaged = any(change.outcome is Outcome.DAMAGED for change in changes)
    if action == "convert" and not is_dry and not damaged:
        wanted = {change.place for change in changes if change.outcome is Outcome.CONVERTED}
        again = _tasks(url, options, manifests, action, entry_size, only_damaged, False, incarnations)
        again = [task for task, manifest in zip(again, manifests, strict=True) if _place(url, manifest) in wanted]
        converted = _run(spark, again, "converting indexes", progress)
        changes = [change for change in changes if change.place not in wanted] + converted
    return changes, len(manifests)


def _tasks(
    url: str,
    options: Mapping[str, str],
    manifests: Sequence[SegmentManifest],
    action: str,
    entry_size: int | None,
    only_damaged: bool,
    is_dry: bool,
    incarnations: frozenset[str] | None,
) -> list[_Task]:
    return [
        _Task(
            url,
            dict(options),
            _manifest_key(manifest),
            manifest.segment_size_in_bytes,
            action,
            entry_size,
            only_damaged,
            is_dry,
            incarnations,
        )
        for manifest in manifests
    ]


def _writes(action: str, is_dry: bool) -> bool:
    return action != "verify" and not is_dry


def _what(action: str) -> str:
    return f"spark index {action}"


def _manifest_key(manifest: SegmentManifest) -> str:
    return object_key(manifest, ObjectKind.MANIFEST)


def _place(url: str, manifest: SegmentManifest, kind: ObjectKind = ObjectKind.OFFSET_INDEX) -> str:
    return f"{url}/{object_key(manifest, kind)}"


def _run(spark: SparkSession, tasks: Sequence[_Task], title: str, progress: Progress) -> list[IndexChange]:
    def cost(task: _Task) -> int:
        return 1 if task.action == "convert" else task.size

    found = run_tasks(spark, tasks, _work, title=title, progress=progress, cost=cost)
    return [change for changes in found for change in changes]


# --- on the workers ---------------------------------------------------------------------------------------------------


def _work(task: _Task) -> list[IndexChange]:
    view = open_bucket(task.url, task.options)
    manifest = read_manifest(view.inner, task.manifest_key)
    if task.action == "verify":
        return _verify(task, view, manifest)
    if (why := why_untouchable(manifest)) is not None:
        return _leave_alone(task, view, manifest, why)
    if _writes(task.action, task.is_dry):  # it may have changed hands since the job began
        check_directories(view.inner, _what(task.action), task.incarnations, [manifest])
    return _convert(task, view, manifest) if task.action == "convert" else _rebuild(task, view, manifest)


def _verify(task: _Task, view: PlainView, manifest: SegmentManifest) -> list[IndexChange]:
    try:
        return _wrong(task, view, manifest)
    except RemoteStorageError as error:
        if manifest.encryption is None or isinstance(error, RetriableRemoteStorageError):
            raise
        return [_change(task, manifest, ObjectKind.OFFSET_INDEX, Outcome.SKIPPED, f"not looked at: {error}")]


def _leave_alone(task: _Task, view: PlainView, manifest: SegmentManifest, why: str) -> list[IndexChange]:
    """What would have to be done with a segment that is not written here; nothing for indexes that are as is wanted."""
    if task.action == "convert":
        planned = _convert(replace(task, is_dry=True), view, manifest)
    elif task.only_damaged:
        planned = _verify(task, view, manifest)
    else:
        return [_change(task, manifest, ObjectKind.OFFSET_INDEX, Outcome.SKIPPED, why)]
    return [
        each
        if each.outcome in (Outcome.LEFT, Outcome.SKIPPED)
        else replace(each, outcome=Outcome.SKIPPED, detail=f"{why}: {each.detail}")
        for each in planned
    ]


def _wrong(task: _Task, view: PlainView, manifest: SegmentManifest) -> list[IndexChange]:
    """Indexes that are missing, damaged or not what the records say."""
    faults = {fault.object: fault.text for fault in read_segment(view, manifest).faults if fault.object in _INDEXES}
    for kind in _INDEXES:
        if kind is ObjectKind.TXN_INDEX and manifest.txn_index_empty:
            continue
        if kind not in manifest.objects:
            faults.setdefault(kind, "the manifest does not list it")
        elif kind not in faults and not _is_there(view, manifest, kind):
            faults[kind] = f"{Kind.MISSING_OBJECT.value}: the manifest lists it, and it is not there"
    return [_change(task, manifest, kind, Outcome.DAMAGED, text) for kind, text in faults.items()]


def _is_there(view: PlainView, manifest: SegmentManifest, kind: ObjectKind) -> bool:
    try:
        view.head(manifest.key(kind))
    except RemoteStorageError:
        return False
    return True


def _rebuild(task: _Task, view: PlainView, manifest: SegmentManifest) -> list[IndexChange]:
    wrong = {change.place for change in _wrong(task, view, manifest)}
    asked = [
        kind
        for kind in (ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX)
        if not task.only_damaged or _place(task.url, manifest, kind) in wrong
    ]
    changes = [_change(task, manifest, kind, Outcome.REBUILT, "made anew from the records") for kind in asked]
    if asked and not task.is_dry:
        carry_out(view.inner, RemakeIndexes(task.manifest_key, tuple(asked)))
    if _place(task.url, manifest, ObjectKind.TXN_INDEX) in wrong:
        changes.append(_rebuild_txn(task, open_bucket(task.url, task.options)))
    return changes


def _rebuild_txn(task: _Task, view: PlainView) -> IndexChange:
    manifest = read_manifest(view.inner, task.manifest_key)
    kind = ObjectKind.TXN_INDEX
    try:
        rebuilt = remake(view, manifest, (kind,), is_dry=task.is_dry)
    except RemoteStorageError as error:
        return _change(task, manifest, kind, Outcome.SKIPPED, str(error))
    if not task.is_dry:
        view.inner.put(task.manifest_key, rebuilt.manifest.to_json())
    count = len(rebuilt.contents[kind]) // txn_index.ENTRY_SIZE
    return _change(task, manifest, kind, Outcome.REBUILT, f"{count} aborted transactions")


def _convert(task: _Task, view: PlainView, manifest: SegmentManifest) -> list[IndexChange]:
    assert task.entry_size is not None
    form = format_of(task.entry_size)
    kind = ObjectKind.OFFSET_INDEX
    try:
        done = convert_index(view, manifest, form, is_dry=task.is_dry)
    except (RemoteStorageError, KeyError) as error:
        return [_change(task, manifest, kind, Outcome.DAMAGED, str(error))]
    if done.misfit is not None:
        text = f"position {done.misfit} does not fit entries of {form.entry_size} bytes"
        return [_change(task, manifest, kind, Outcome.MISFIT, text)]
    if not done.is_needed:
        return [_change(task, manifest, kind, Outcome.LEFT, f"already {form.name} or empty")]
    return [_change(task, manifest, kind, Outcome.CONVERTED, f"{done.entries} entries, to {form.name}")]


def _change(task: _Task, manifest: SegmentManifest, kind: ObjectKind, outcome: Outcome, detail: str) -> IndexChange:
    partition = f"{manifest.topic}-{manifest.partition}"
    return IndexChange(partition, _place(task.url, manifest, kind), outcome, detail)
