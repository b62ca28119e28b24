"""Indexes of a bucket, one task for each segment. The manifest is written last, with the new checksum.

Encrypted segments and those in Aiven's layout are verified like all others, with the keys from the options, but never
written: an index that would need it is SKIPPED.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from stratalog.errors import RemoteStorageError, RetriableRemoteStorageError
from stratalog.inspect import list_remote_segments
from stratalog.jobs.audit import AuditKind, RemakeIndexes, carry_out, read_segment, remake
from stratalog.jobs.executor import Executor
from stratalog.jobs.index.convert import convert_index, why_untouchable
from stratalog.jobs.index.result import IndexChange, Outcome, refuse_misfits
from stratalog.jobs.progress import Progress
from stratalog.log.format import OffsetIndexFormat
from stratalog.log.index import txn_index
from stratalog.remote.ownership import check_directories
from stratalog.remote.storage import ObjectKind, PlainView, SegmentManifest, object_key, open_bucket, read_manifest

_INDEXES: Final = (ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX, ObjectKind.TXN_INDEX)


@dataclass(frozen=True, slots=True)
class BucketWork:
    """A job on the indexes of a bucket: `action` is verify, rebuild or convert.

    If a cluster owns the bucket, `incarnations` must be those of its stopped data directory: a running broker might
    delete a segment while its manifest is put.
    """

    url: str
    options: Mapping[str, str] = field(hash=False)
    action: str
    form: OffsetIndexFormat | None = None
    only_damaged: bool = False
    is_dry: bool = False
    incarnations: frozenset[str] | None = None

    @property
    def what(self) -> str:
        return f"spark index {self.action}"

    @property
    def writes(self) -> bool:
        return self.action != "verify" and not self.is_dry


@dataclass(frozen=True, slots=True)
class _Task:
    work: BucketWork
    manifest_key: str
    size: int

    def __str__(self) -> str:
        return f"{self.work.url}/{self.manifest_key}"


def check_may_write(work: BucketWork) -> None:
    """Raise NotOwnerError if the bucket has another owner. Called before a directory is changed."""
    if work.writes:
        check_directories(open_bucket(work.url, work.options).inner, work.what, work.incarnations)


def change_bucket(
    work: BucketWork, topics: Collection[str] | None, executor: Executor, progress: Progress
) -> tuple[list[IndexChange], int]:
    """Verify, rebuild or convert every segment's indexes. Return the changes and the number of segments.

    A conversion checks everything first. It writes nothing if an index is damaged or a position does not fit
    (UsageError). Raises NotOwnerError if it must write and lacks the `incarnations` of the owner.
    """
    store = open_bucket(work.url, work.options).inner
    manifests = list_remote_segments(store, topics, covered=True)
    if work.writes:
        changed = [each for each in manifests if why_untouchable(each) is None]
        check_directories(store, work.what, work.incarnations, changed)
    first = replace(work, is_dry=work.is_dry or work.action == "convert")
    changes = _run(first, manifests, f"{work.action} indexes", executor, progress)
    damaged = any(change.outcome is Outcome.DAMAGED for change in changes)
    if not damaged:
        refuse_misfits(changes)
    if work.action == "convert" and not work.is_dry and not damaged:
        wanted = {change.place for change in changes if change.outcome is Outcome.CONVERTED}
        again = [manifest for manifest in manifests if _place(work.url, manifest) in wanted]
        converted = _run(work, again, "converting indexes", executor, progress)
        changes = [change for change in changes if change.place not in wanted] + converted
    return changes, len(manifests)


def _run(
    work: BucketWork, manifests: Sequence[SegmentManifest], title: str, executor: Executor, progress: Progress
) -> list[IndexChange]:
    tasks = [
        _Task(work, object_key(manifest, ObjectKind.MANIFEST), manifest.segment_size_in_bytes) for manifest in manifests
    ]
    is_small = work.action == "convert"
    done = executor.map(_work, tasks, title=title, progress=progress, cost=lambda task: 1 if is_small else task.size)
    return [change for changes in done for change in changes]


def _place(url: str, manifest: SegmentManifest, kind: ObjectKind = ObjectKind.OFFSET_INDEX) -> str:
    return f"{url}/{object_key(manifest, kind)}"


def _work(task: _Task) -> list[IndexChange]:
    view = open_bucket(task.work.url, task.work.options)
    manifest = read_manifest(view.inner, task.manifest_key)
    if task.work.action == "verify":
        return _verify(task, view, manifest)
    if (why := why_untouchable(manifest)) is not None:
        return _leave_alone(task, view, manifest, why)
    if task.work.writes:  # the owner may have changed since the job began
        check_directories(view.inner, task.work.what, task.work.incarnations, [manifest])
    return _convert(task, view, manifest) if task.work.action == "convert" else _rebuild(task, view, manifest)


def _verify(task: _Task, view: PlainView, manifest: SegmentManifest) -> list[IndexChange]:
    try:
        return _wrong(task, view, manifest)
    except RemoteStorageError as error:
        if manifest.encryption is None or isinstance(error, RetriableRemoteStorageError):
            raise
        return [_change(task, manifest, ObjectKind.OFFSET_INDEX, Outcome.SKIPPED, f"not looked at: {error}")]


def _leave_alone(task: _Task, view: PlainView, manifest: SegmentManifest, why: str) -> list[IndexChange]:
    """Report the indexes that would have to be written in a segment that must not be changed."""
    if task.work.action == "convert":
        planned = _convert(replace(task, work=replace(task.work, is_dry=True)), view, manifest)
    elif task.work.only_damaged:
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
    """Report indexes that are missing, damaged or contradict the records."""
    faults = {fault.object: fault.text for fault in read_segment(view, manifest).faults if fault.object in _INDEXES}
    for kind in _INDEXES:
        if kind is ObjectKind.TXN_INDEX and manifest.txn_index_empty:
            continue
        if kind not in manifest.objects:
            faults.setdefault(kind, "the manifest does not list it")
        elif kind not in faults and not _is_there(view, manifest, kind):
            faults[kind] = f"{AuditKind.MISSING_OBJECT.value}: the manifest lists it, but it does not exist"
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
        if not task.work.only_damaged or _place(task.work.url, manifest, kind) in wrong
    ]
    changes = [_change(task, manifest, kind, Outcome.REBUILT, "rebuilt from the records") for kind in asked]
    if asked and not task.work.is_dry:
        carry_out(view.inner, RemakeIndexes(task.manifest_key, tuple(asked)))
    if _place(task.work.url, manifest, ObjectKind.TXN_INDEX) in wrong:
        changes.append(_rebuild_txn(task, open_bucket(task.work.url, task.work.options)))
    return changes


def _rebuild_txn(task: _Task, view: PlainView) -> IndexChange:
    manifest = read_manifest(view.inner, task.manifest_key)
    kind = ObjectKind.TXN_INDEX
    try:
        rebuilt = remake(view, manifest, (kind,), is_dry=task.work.is_dry)
    except RemoteStorageError as error:
        return _change(task, manifest, kind, Outcome.SKIPPED, str(error))
    if not task.work.is_dry:
        view.inner.put(task.manifest_key, rebuilt.manifest.to_json())
    count = len(rebuilt.contents[kind]) // txn_index.ENTRY_SIZE
    return _change(task, manifest, kind, Outcome.REBUILT, f"{count} aborted transactions")


def _convert(task: _Task, view: PlainView, manifest: SegmentManifest) -> list[IndexChange]:
    form = task.work.form
    assert form is not None
    kind = ObjectKind.OFFSET_INDEX
    try:
        done = convert_index(view, manifest, form, is_dry=task.work.is_dry)
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
    return IndexChange(partition, _place(task.work.url, manifest, kind), outcome, detail)
