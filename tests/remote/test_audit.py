"""The audit of a bucket: every kind of fault is found, a sound bucket has none, and repair mends what it may."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from stratalog.jobs import Severity, Threads
from stratalog.jobs.audit.bucket import AuditOptions, audit_bucket
from stratalog.jobs.audit.findings import AuditKind, plan_repair
from stratalog.jobs.audit.repair import carry_out
from stratalog.jobs.audit.segment_history import NotProvedError
from stratalog.jobs.ledger import Ledger
from stratalog.remote.api.segment_state import RemoteLogSegmentState
from stratalog.remote.storage.object_names import ObjectKind
from stratalog.remote.storage.object_store import ObjectStore
from tests.remote.audit_world import HOUR_MS, SoundBucket, SpoiltBucket, later

LOG, INDEX, TIMES, EPOCHS, MANIFEST, SNAPSHOT, TXN = (
    ObjectKind.LOG,
    ObjectKind.OFFSET_INDEX,
    ObjectKind.TIME_INDEX,
    ObjectKind.LEADER_EPOCHS,
    ObjectKind.MANIFEST,
    ObjectKind.PRODUCER_SNAPSHOT,
    ObjectKind.TXN_INDEX,
)
STARTED, FINISHED, DELETING, DELETED = RemoteLogSegmentState


@dataclass(frozen=True)
class Fault:
    """One way to spoil a segment; `kind` is what the audit has to call it, `becomes` what repair makes of it."""

    name: str
    kind: str
    spoil: Callable[[SpoiltBucket, int], object]
    becomes: str

    def __str__(self) -> str:
        return self.name


def both(*steps: Callable[[SpoiltBucket, int], object]) -> Callable[[SpoiltBucket, int], object]:
    return lambda bucket, n: [step(bucket, n) for step in steps]


#: `becomes`: "sound" again, "gone" from the bucket, or "same": repair leaves it alone.
FAULTS = [
    Fault("manifest lost", "missing-manifest", lambda b, n: b.delete(n, MANIFEST), "sound"),
    Fault("manifest and indexes lost", "missing-manifest", lambda b, n: b.delete(n, MANIFEST, INDEX, TIMES), "sound"),
    Fault("manifest garbled", "damaged-manifest", lambda b, n: b.put(n, MANIFEST, b"{"), "sound"),
    Fault("manifest empty", "damaged-manifest", lambda b, n: b.put(n, MANIFEST, b""), "sound"),
    Fault(
        "manifest of a later version",
        "unknown-version",
        lambda b, n: b.put(n, MANIFEST, b'{"format": "stratalog-segment-manifest", "version": 99}'),
        "same",
    ),
    Fault("offset index lost", "missing-object", lambda b, n: b.delete(n, INDEX), "sound"),
    Fault("time index lost", "missing-object", lambda b, n: b.delete(n, TIMES), "sound"),
    Fault("both indexes lost", "missing-object", lambda b, n: b.delete(n, INDEX, TIMES), "sound"),
    Fault("offset index cut", "wrong-size", lambda b, n: b.cut(n, INDEX), "sound"),
    Fault("offset index flipped", "damaged-object", lambda b, n: b.flip(n, INDEX), "sound"),
    Fault("time index flipped", "damaged-object", lambda b, n: b.flip(n, TIMES, 0), "sound"),
    Fault("snapshot lost", "missing-object", lambda b, n: b.delete(n, SNAPSHOT), "sound"),
    Fault("epochs flipped", "damaged-object", lambda b, n: b.flip(n, EPOCHS), "sound"),
    Fault("epochs lost", "missing-object", lambda b, n: b.delete(n, EPOCHS), "sound"),
    Fault("manifest and epochs lost", "missing-manifest", lambda b, n: b.delete(n, MANIFEST, EPOCHS), "sound"),
    Fault("records flipped", "damaged-object", lambda b, n: b.flip(n, LOG), "same"),
    Fault(
        "records and index flipped",
        "damaged-object",
        both(lambda b, n: b.flip(n, LOG), lambda b, n: b.flip(n, INDEX)),
        "same",
    ),
    Fault("records cut", "wrong-size", lambda b, n: b.cut(n, LOG), "same"),
    Fault("records lost", "missing-object", lambda b, n: b.delete(n, LOG), "same"),
    Fault("everything lost", "missing-segment", lambda b, n: b.delete(n), "same"),
    Fault("records and manifest lost", "missing-segment", lambda b, n: b.delete(n, LOG, MANIFEST), "same"),
    Fault("deletion begun", "unfinished-deletion", lambda b, n: b.state(n, DELETING), "gone"),
    Fault(
        "deletion half done",
        "unfinished-deletion",
        both(lambda b, n: b.state(n, DELETING), lambda b, n: b.delete(n, MANIFEST, LOG)),
        "gone",
    ),
    Fault(
        "deleted, indexes left",
        "undeleted",
        both(lambda b, n: b.state(n, DELETED), lambda b, n: b.delete(n, MANIFEST, LOG)),
        "gone",
    ),
    Fault("deleted and put back", "undeleted", lambda b, n: b.state(n, DELETED), "same"),
    Fault(
        "deleted, and its manifest came late",
        "undeleted",
        both(lambda b, n: b.state(n, DELETED), lambda b, n: b.delete(n, LOG, INDEX, TIMES, EPOCHS, SNAPSHOT)),
        "gone",
    ),
    Fault(
        "copy that nobody knows",
        "orphan",
        both(lambda b, n: b.state(n, None), lambda b, n: b.delete(n, MANIFEST)),
        "gone",
    ),
    Fault(
        "replaced, not deleted",
        "replaced",
        both(
            lambda b, n: b.state(n, None),
            lambda b, n: b.put(n, ObjectKind.REPLACED, b"{}"),
            lambda b, n: b.delete(n, MANIFEST),
        ),
        "gone",
    ),
    Fault(
        "replaced, and its brokers do not know",
        "replaced",
        both(lambda b, n: b.put(n, ObjectKind.REPLACED, b"{}"), lambda b, n: b.delete(n, MANIFEST)),
        "same",
    ),
    Fault("complete, not known", "unreferenced", lambda b, n: b.state(n, None), "same"),
    Fault("complete, not declared", "unfinished-copy", lambda b, n: b.state(n, STARTED), "same"),
    Fault(
        "copy that died",
        "unfinished-copy",
        both(lambda b, n: b.state(n, STARTED), lambda b, n: b.delete(n, MANIFEST, EPOCHS)),
        "same",
    ),
    Fault("object nobody lists", "unlisted-object", lambda b, n: b.put(n, TXN, b""), "sound"),
]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> SoundBucket:
    bucket = SoundBucket.make(tmp_path_factory.mktemp("sound"))
    assert len(bucket.segments) >= 5
    return bucket


def test_a_sound_bucket_has_no_findings(sound: SoundBucket) -> None:
    result = sound.copy().audit()
    assert result.findings == []
    assert (result.partitions, result.segments, result.objects) == (
        1,
        len(sound.segments),
        len(sound.objects),
    )
    assert result.bytes == sum(map(len, sound.objects.values()))
    manifests = sum(len(data) for key, data in sound.objects.items() if key.endswith(".manifest.json"))
    assert result.read_bytes == result.bytes - manifests


def test_without_metadata_a_sound_bucket_has_no_findings_either(sound: SoundBucket) -> None:
    assert sound.copy().audit(with_metadata=False).findings == []


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_every_fault_is_found_and_mended_or_left_alone(fault: Fault, sound: SoundBucket) -> None:
    bucket = sound.copy()
    fault.spoil(bucket, 2)
    before = bucket.content()
    found = bucket.audit()
    assert fault.kind in bucket.kinds(2, found)
    assert bucket.content() == before, "an audit changes nothing"
    mends = bucket.repair(found)
    after = bucket.audit()
    assert not any(one.mend for one in after.findings)
    if fault.becomes == "same":
        assert (mends, bucket.content()) == (0, before)
    elif fault.becomes == "gone":
        assert bucket.keys(2) == []
    else:
        assert after.findings == []
        assert bucket.store.get(bucket.key(2, LOG)) == sound.objects[bucket.key(2, LOG)]


def test_remade_indexes_are_those_of_the_log(sound: SoundBucket) -> None:
    """What was lost comes back byte for byte, if its interval was the usual one: here it is a coarser one, and
    right."""
    bucket = sound.copy()
    bucket.delete(0, INDEX, TIMES)
    bucket.repair(bucket.audit())
    assert bucket.audit().findings == []
    assert bucket.repair(bucket.audit()) == 0


def test_a_damaged_batch_is_not_put_down_to_the_indexes(sound: SoundBucket) -> None:
    """They point at it rightly; there is nothing to be mended."""
    bucket = sound.copy()
    for at in (400, 1_500, 3_000):
        bucket.flip(2, LOG, at)
    found = bucket.audit()
    assert bucket.kinds(2, found) == {"damaged-object", "damaged-batch"}
    assert {one.object_key for one in found.findings} == {bucket.key(2, LOG)}


def test_what_is_made_again_of_one_segment_is_one_mend(sound: SoundBucket) -> None:
    bucket = sound.copy()
    bucket.delete(1, INDEX, SNAPSHOT, EPOCHS)
    (planned,) = plan_repair(bucket.audit().findings, later(), 0).mends
    assert planned.finding.object_key is None  # it is named by the segment
    assert planned.mend.describe() == "rebuild index, leader-epoch-checkpoint and snapshot from the records"


def test_a_manifest_is_written_again_as_it_was(sound: SoundBucket) -> None:
    bucket = sound.copy()
    bucket.delete(1, MANIFEST)
    bucket.repair(bucket.audit())
    from stratalog.remote.storage.manifest import SegmentManifest

    key = bucket.key(1, MANIFEST)
    written = SegmentManifest.from_json(bucket.store.get(key), key)
    lost = SegmentManifest.from_json(sound.objects[key], key)
    assert {kind: (o.size, o.crc32c) for kind, o in written.objects.items()} == {
        kind: (o.size, o.crc32c) for kind, o in lost.objects.items()
    }
    assert (written.block_crc32c, written.metadata()) == (lost.block_crc32c, lost.metadata())


def test_a_manifest_is_not_written_when_the_records_do_not_prove_it(sound: SoundBucket) -> None:
    bucket = sound.copy()
    bucket.delete(1, MANIFEST)
    bucket.flip(1, LOG)
    before = bucket.content()
    (planned,) = plan_repair(bucket.audit().findings, later(), 0).mends
    with pytest.raises(NotProvedError, match="checksum"):
        carry_out(bucket.store, planned.mend)
    assert bucket.content() == before


def test_indexes_are_not_remade_from_damaged_records(sound: SoundBucket) -> None:
    """Without --deep the damage of the records is found by the mend itself."""
    bucket = sound.copy()
    bucket.delete(1, INDEX)
    bucket.flip(1, LOG)
    before = bucket.content()
    (planned,) = plan_repair(bucket.audit(deep=False).findings, later(), 0).mends
    with pytest.raises(Exception, match="damaged"):
        carry_out(bucket.store, planned.mend)
    assert bucket.content() == before


def test_a_manifest_that_comes_concurrently_saves_its_objects(sound: SoundBucket) -> None:
    bucket = sound.copy()
    bucket.state(1, None)
    manifest = bytes(bucket.store.get(bucket.key(1, MANIFEST)))
    bucket.delete(1, MANIFEST)
    (planned,) = plan_repair(bucket.audit().findings, later(), 0).mends
    bucket.put(1, MANIFEST, manifest)
    before = bucket.content()
    with pytest.raises(NotProvedError, match="since the audit"):
        carry_out(bucket.store, planned.mend)
    assert bucket.content() == before


def test_nothing_younger_than_the_grace_period_is_touched(sound: SoundBucket) -> None:
    bucket = sound.copy()
    bucket.state(1, None)
    bucket.delete(1, MANIFEST)
    bucket.delete(2, INDEX)
    found = bucket.audit(grace_ms=HOUR_MS)
    plan = plan_repair(found.findings, later(), HOUR_MS)
    assert plan.mends == ()
    assert len(plan.too_young) == 2
    old = plan_repair(found.findings, later() + 2 * HOUR_MS, HOUR_MS)
    assert (len(old.mends), old.too_young) == (2, ())


def test_a_clock_that_is_behind_the_store_makes_everything_young(sound: SoundBucket) -> None:
    bucket = sound.copy()
    bucket.state(1, None)
    bucket.delete(1, MANIFEST)
    found = bucket.audit(now_ms=later() - 24 * HOUR_MS)
    assert plan_repair(found.findings, later() - 24 * HOUR_MS, 0).mends == ()


def test_what_may_be_under_way_is_a_note(sound: SoundBucket) -> None:
    bucket = sound.copy()
    bucket.state(1, STARTED)
    bucket.delete(1, MANIFEST, EPOCHS)
    young = [one for one in bucket.audit(grace_ms=HOUR_MS).findings if one.segment_id == bucket.segment_id(1)]
    old = [one for one in bucket.audit().findings if one.segment_id == bucket.segment_id(1)]
    assert [one.severity for one in young] == [Severity.NOTE]
    assert [one.severity for one in old] == [Severity.WARNING]


def test_without_metadata_a_whole_set_is_never_deleted_and_a_part_of_one_is(sound: SoundBucket) -> None:
    bucket = sound.copy()
    bucket.delete(1, MANIFEST)
    bucket.delete(2, MANIFEST, LOG)
    found = bucket.audit(with_metadata=False)
    assert (bucket.kinds(1, found), bucket.kinds(2, found)) == ({"orphan"}, {"orphan"})
    assert bucket.repair(found) == 1
    assert (len(bucket.keys(1)), bucket.keys(2)) == (5, [])


def test_metadata_of_another_cluster_is_no_reason_to_delete(sound: SoundBucket) -> None:
    bucket = sound.copy()
    bucket.delete(1, MANIFEST)
    bucket.known.clear()
    found = bucket.audit()
    assert "unknown-partition" in {one.kind.value for one in found.findings}
    assert bucket.repair(found) == 0


def test_metadata_that_contradicts_the_manifest_is_reported(sound: SoundBucket) -> None:
    from dataclasses import replace

    bucket = sound.copy()
    segment_id = bucket.segment_id(1)
    known = bucket.known[segment_id]
    bucket.known[segment_id] = replace(known, end_offset=known.end_offset + 1, segment_size_bytes=5)
    (finding,) = bucket.audit().findings
    assert (finding.kind.value, finding.mend) == ("metadata-differs", None)
    assert "end offset" in finding.text
    assert "5 in the metadata" in finding.text


def test_a_copy_under_another_id_is_covered(sound: SoundBucket) -> None:
    bucket = sound.copy()
    bucket.again(2)
    (finding,) = bucket.audit().findings
    assert (finding.kind.value, finding.severity, finding.mend) == ("covered", Severity.NOTE, None)


def test_foreign_objects_are_named_and_left_alone(sound: SoundBucket) -> None:
    bucket = sound.copy()
    foreign = ["README", "other/thing", f"{bucket.key(0, LOG)}.bak"]
    for key in foreign:
        bucket.store.put(key, b"x")
    found = bucket.audit()
    assert {one.kind.value for one in found.findings} == {"foreign-object"}
    assert sorted(one.object_key or "" for one in found.findings) == sorted(["README", "other/", foreign[2]])
    assert bucket.repair(found) == 0


def test_a_manifest_under_the_key_of_another_segment_is_damage(sound: SoundBucket) -> None:
    bucket = sound.copy()
    bucket.put(1, MANIFEST, sound.objects[bucket.key(2, MANIFEST)])
    assert "damaged-manifest" in bucket.kinds(1, bucket.audit())
    bucket.repair(bucket.audit())
    assert bucket.audit().findings == []


SPOILT = st.lists(st.sampled_from([None, None, *FAULTS]), min_size=5, max_size=5)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(faults=SPOILT)
def test_any_faults_are_each_found_and_repair_ends(faults: list[Fault | None], sound: SoundBucket) -> None:
    """Every injected fault is found at its segment; sound segments have no finding and stay as they are, byte for byte;
    after repair nothing is left that repair can mend, but for snapshots behind segments that cannot be read, and doing
    it again changes nothing."""
    bucket = sound.copy()
    for number, fault in enumerate(faults):
        if fault is not None:
            fault.spoil(bucket, number)
    found = bucket.audit()
    for number, fault in enumerate(faults):
        kinds = bucket.kinds(number, found)
        assert (not kinds) if fault is None else (fault.kind in kinds)
    bucket.repair(found)
    after = bucket.audit()
    snapshots = {
        number
        for number, fault in enumerate(faults)
        if fault is not None and fault.name == "snapshot lost" and any(faults[:number])
    }
    left = {one.segment_id for one in after.findings if one.mend is not None}
    assert left <= {bucket.segment_id(number) for number in snapshots}
    content = bucket.content()
    for number, fault in enumerate(faults):
        if (fault is None or fault.becomes == "sound") and number not in snapshots:
            assert not bucket.kinds(number, after)
        if fault is None:
            for key in bucket.keys(number):
                assert content[key] == sound.objects[key]
        elif fault.becomes == "gone":
            assert bucket.keys(number) == []
    assert bucket.repair(after) == 0
    assert bucket.content() == content


def test_an_unreadable_store_is_an_error_and_no_finding(sound: SoundBucket) -> None:
    from stratalog.errors import RemoteStorageError
    from stratalog.testing.faulty_store import FaultPlan, FaultyObjectStore, StoreFault as StoreFault

    faults = FaultPlan()
    bucket = sound.copy()
    bucket.store = FaultyObjectStore(bucket.store, faults)
    bucket.audit()
    for step in range(1, len(faults.steps) + 1):
        faults.at(step, StoreFault.DENIED)
        with pytest.raises(RemoteStorageError, match="denied"):
            bucket.audit()
        faults.heal()


def test_an_audit_that_fails_leaves_no_threads_to_the_garbage_collector(sound: SoundBucket) -> None:
    """Left to it, they are waited for wherever it runs; in the middle of a thread's start that lasts for ever."""
    begun: list[Generator[Any, None, None]] = []

    class NotedThreads(Threads):
        def map(self, *args: Any, **options: Any) -> Generator[Any, None, None]:
            begun.append(super().map(*args, **options))
            return begun[-1]

    class FullLedger(Ledger):
        def add(self, key: str, value: str) -> None:
            raise OSError("no space left on device")

    bucket = sound.copy()
    options = AuditOptions(later(), 0, deep=True)
    with pytest.raises(OSError, match="no space left") as failed:
        audit_bucket(bucket.store, options, executor=NotedThreads(2), ledger=FullLedger(None, "audit"))
    assert failed.traceback, "it keeps the frames alive, and what they hold"
    assert [inspect.getgeneratorstate(each) for each in begun] == [inspect.GEN_CLOSED] * 2


def crash_points(sound: SoundBucket, spoil: Callable[[SpoiltBucket], object]) -> int:
    """Repair with a crash at every call, each time from the start; how many calls there were."""
    from stratalog.testing.faulty_store import FaultPlan, FaultyObjectStore, SimulatedCrash, StoreFault as StoreFault

    step = 0
    while True:
        step += 1
        for fault in (StoreFault.CRASH, StoreFault.CRASH_AFTER):
            bucket = sound.copy()
            spoil(bucket)
            readable = bucket.audit()
            faults = FaultPlan()
            faults.at(step, fault)
            try:
                bucket.repair(readable, FaultyObjectStore(bucket.store, faults))
            except SimulatedCrash:
                between = bucket.audit()
                spoilt = {one.segment_id for one in readable.findings}
                assert {one.segment_id for one in between.findings} <= spoilt
                bucket.repair(between)
                assert not any(one.mend for one in bucket.audit().findings)
            else:
                if step > len(faults.steps):
                    return step
            for number in range(3, len(sound.segments)):
                for key in bucket.keys(number):
                    assert bucket.store.get(key) == sound.objects[key]


def test_a_crash_at_any_step_of_repair_leaves_nothing_worse(sound: SoundBucket) -> None:
    def spoil(bucket: SpoiltBucket) -> None:
        bucket.state(0, DELETING)
        bucket.delete(1, MANIFEST, INDEX)
        bucket.flip(2, TIMES, 0)

    assert crash_points(sound, spoil) > 15


@pytest.mark.parametrize("name", ["UNAVAILABLE", "DENIED", "LOST_ANSWER", "SHORT", "WRONG"])
def test_a_store_that_fails_at_any_step_of_repair_leaves_nothing_worse(name: str, sound: SoundBucket) -> None:
    """What is not done is done by the next repair, and what was sound stays so, whatever one call answers."""
    from stratalog.errors import RemoteStorageError
    from stratalog.testing.faulty_store import FaultPlan, FaultyObjectStore, StoreFault as StoreFault

    step, steps = 0, 1
    while step < steps:
        step += 1
        bucket = sound.copy()
        bucket.state(0, DELETING)
        bucket.delete(1, MANIFEST, INDEX)
        bucket.flip(2, TIMES, 0)
        found = bucket.audit()
        faults = FaultPlan()
        faults.at(step, StoreFault[name])
        store = FaultyObjectStore(bucket.store, faults)
        for planned in plan_repair(found.findings, later(), 0).mends:
            with contextlib.suppress(RemoteStorageError):
                carry_out(store, planned.mend)
        steps = max(steps, len(faults.steps))
        between = bucket.audit()
        assert {one.segment_id for one in between.findings} <= {one.segment_id for one in found.findings}
        bucket.repair(between)
        assert not any(one.severity is Severity.ERROR for one in bucket.audit().findings)
        for number in range(3, len(sound.segments)):
            for key in bucket.keys(number):
                assert bucket.store.get(key) == sound.objects[key]
    assert step > 15


def test_the_store_tells_the_time_and_nothing_of_it_stays(sound: SoundBucket, tmp_path: Path) -> None:
    from stratalog.jobs.audit.repair import store_time_ms

    store = ObjectStore.from_url(tmp_path.as_uri())
    assert abs(store_time_ms(store) - (later() - 5_000)) < 60_000
    assert list(store.list()) == []


def test_every_kind_of_finding_has_a_row_in_the_page_and_every_row_a_kind() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "tiered_storage.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| `([a-z-]+)` \| (?:error|warning|note)", page)
    assert sorted(rows) == sorted(kind.value for kind in AuditKind)
