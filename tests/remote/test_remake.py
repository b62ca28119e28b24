"""What stands beside the records of a remote segment is rebuilt from what the bucket tells, or it is said why not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.jobs.audit.bucket import AuditOptions, audit_bucket
from stratalog.jobs.audit.findings import plan_repair
from stratalog.jobs.audit.repair import carry_out
from stratalog.jobs.audit.segment_history import NotProvedError
from stratalog.log.index.txn_index import AbortedTransaction, decode_entries
from stratalog.records.batch import iter_batches
from stratalog.remote.storage.manifest import SegmentManifest
from stratalog.remote.storage.object_names import CONTENTS, ObjectKind
from stratalog.remote.storage.object_store import ObjectStore
from tests.remote.audit_world import later
from tests.remote.test_transactions import Producer
from tests.remote.world import CONFIG, World

TXN, SNAPSHOT, EPOCHS, LOG, MANIFEST = (
    ObjectKind.TXN_INDEX,
    ObjectKind.PRODUCER_SNAPSHOT,
    ObjectKind.LEADER_EPOCHS,
    ObjectKind.LOG,
    ObjectKind.MANIFEST,
)
BESIDE = [kind for kind in CONTENTS if kind is not LOG]


@dataclass
class Bucket:
    """Transactions over many segments and leader epochs; what readers of committed records got is in `reported`."""

    world: World
    objects: dict[str, bytes]
    segments: list[SegmentManifest]
    reported: dict[int, list[int]]

    @property
    def store(self) -> ObjectStore:
        return self.world.inner

    def reset(self) -> None:
        self.store.delete([info.key for info in self.store.list()])
        for key, data in self.objects.items():
            self.store.put(key, data)

    def spoil(self, manifest: SegmentManifest, *kinds: ObjectKind, how: str = "flip") -> None:
        for kind in kinds:
            key = manifest.key(kind)
            data = bytes(self.store.get(key))
            if how == "lose":
                self.store.delete([key])
            elif how == "cut":
                self.store.put(key, data[: len(data) // 2])
            else:
                self.store.put(key, bytes([*data[:-1], data[-1] ^ 1]) if data else b"x")

    def with_aborts(self) -> list[SegmentManifest]:
        return [manifest for manifest in self.segments if not manifest.txn_index_empty]

    def begin_at(self, number: int) -> None:
        """As retention does: the segments before are gone."""
        for manifest in self.segments[:number]:
            self.store.delete([info.key for info in self.store.list() if str(_name(manifest)) in info.key])

    def findings(self) -> list[str]:
        found = audit_bucket(self.store, AuditOptions(later(), 0, deep=True)).findings
        return [f"{one.kind.value} {one.object_key}" for one in found]

    def plan(self) -> list[str]:
        found = audit_bucket(self.store, AuditOptions(later(), 0, deep=True)).findings
        return [planned.mend.describe() for planned in plan_repair(found, later(), 0).mends]

    def repair(self) -> list[str]:
        found = audit_bucket(self.store, AuditOptions(later(), 0, deep=True)).findings
        return [carry_out(self.store, planned.mend).text for planned in plan_repair(found, later(), 0).mends]

    def committed(self, start: int = 0) -> dict[int, list[int]]:
        self.world.index_cache_forget()
        return committed(self.world, start)


def _name(manifest: SegmentManifest) -> str:
    return manifest.key(LOG).removesuffix("log")


def committed(world: World, start: int = 0) -> dict[int, list[int]]:
    """By the offset asked for: base offsets of the batches that clients leave to a reader of committed records."""
    found = {}
    for asked in (base for base in world.expected if start <= base < world.log.local_log_start_offset):
        result = world.manager.read(world.partition, asked, 2_000, read_committed=True)
        waiting = sorted(result.aborted or [], key=lambda each: each.first_offset, reverse=True)
        aborting: set[int] = set()
        kept = []
        for batch in iter_batches(result.records):
            while waiting and waiting[-1].first_offset <= batch.last_offset:
                aborting.add(waiting.pop().producer_id)
            if batch.is_control:
                aborting.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborting):
                kept.append(batch.base_offset)
        found[asked] = kept
    return found


def live(world: World) -> None:
    """Transactions of three producers that span segments and overlap; every third or so is aborted; leaders change."""
    one, two, three = (Producer(world, number) for number in (11, 22, 33))
    for turn in range(16):
        one.send(3)
        if turn % 2:
            two.send(2)
        if turn % 5 == 1:
            three.send(4)
        world.append(3)
        if turn % 3 == 0:
            one.end(commit=turn % 2 == 0)
        if turn % 4 == 3:
            two.end(commit=turn == 7)
        if turn % 6 == 5:
            world.restart(crashed=True)
    three.end(commit=False)
    one.end(commit=True)
    two.end(commit=False)
    world.append(30)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Bucket:
    world = World(tmp_path_factory.mktemp("remake"), replace(CONFIG, segment_bytes=3_000))
    live(world)
    world.tier()
    world.drop_local()
    objects = {key: bytes(world.inner.get(key)) for key in world.objects()}
    segments = sorted(list_remote_segments(world.inner), key=lambda manifest: manifest.base_offset)
    return Bucket(world, objects, segments, committed(world))


@pytest.fixture
def bucket(made: Bucket) -> Bucket:
    made.reset()
    return made


def test_the_bucket_is_worth_it(bucket: Bucket) -> None:
    """Several segments have aborted transactions, some of which began in an earlier one."""
    assert bucket.findings() == []
    aborted = [
        (manifest, entry)
        for manifest in bucket.with_aborts()
        for entry in decode_entries(bucket.objects[manifest.key(TXN)])
    ]
    assert len({manifest.segment_id for manifest, _ in aborted}) >= 3
    assert any(entry.first_offset < manifest.base_offset for manifest, entry in aborted)
    everything = sum(len(list(iter_batches(data))) for data in bucket.world.expected.values())
    assert sum(len(kept) for kept in bucket.reported.values()) > everything
    assert max(bucket.segments[-1].leader_epochs) == 2


@pytest.mark.parametrize("how", ["flip", "lose", "cut"])
@pytest.mark.parametrize("kind", BESIDE, ids=lambda kind: kind.value)
def test_any_object_of_any_segment_is_made_again_as_it_was(bucket: Bucket, kind: ObjectKind, how: str) -> None:
    spoilt = [each for each in bucket.segments if kind in each.objects and each.objects[kind].size]
    for manifest in spoilt:
        bucket.spoil(manifest, kind, how=how)
    assert len(spoilt) >= 3
    assert sorted(line.split()[1] for line in bucket.findings()) == sorted(each.key(kind) for each in spoilt)
    assert bucket.plan() == [f"rebuild {kind.value} from the records"] * len(spoilt)
    done = bucket.repair()
    assert bucket.findings() == []
    if kind in (TXN, SNAPSHOT, EPOCHS):
        assert done == [f"rebuilt {kind.value} ({kind.value}: byte for byte as before)"] * len(spoilt)
        assert [bytes(bucket.store.get(each.key(kind))) for each in spoilt] == [
            bucket.objects[each.key(kind)] for each in spoilt
        ]
    assert bucket.committed() == bucket.reported


def test_everything_but_records_and_manifests_may_be_lost_at_once(bucket: Bucket) -> None:
    for manifest in bucket.segments:
        bucket.spoil(manifest, *manifest.objects.keys() - {LOG}, how="lose")
    assert len(bucket.repair()) == len(bucket.segments)
    assert bucket.findings() == []
    for manifest in bucket.segments:
        for kind in manifest.objects.keys() & {TXN, SNAPSHOT, EPOCHS}:
            assert bytes(bucket.store.get(manifest.key(kind))) == bucket.objects[manifest.key(kind)]
    assert bucket.committed() == bucket.reported


def test_where_older_segments_are_gone_readers_of_the_rest_are_reported_the_same(bucket: Bucket) -> None:
    """What a transaction had before the first segment that is left is no one's to read any more."""
    for manifest in bucket.with_aborts():
        bucket.reset()
        number = bucket.segments.index(manifest)
        bucket.begin_at(number)
        bucket.spoil(manifest, TXN)
        assert bucket.repair()[0].startswith("rebuilt txnindex")
        assert bucket.findings() == []
        rest = {base: offsets for base, offsets in bucket.reported.items() if base >= manifest.base_offset}
        assert bucket.committed(manifest.base_offset) == rest


def test_a_snapshot_whose_beginning_is_gone_is_not_made_up(bucket: Bucket) -> None:
    bucket.begin_at(3)
    bucket.spoil(bucket.segments[3], SNAPSHOT)
    before = {info.key: bytes(bucket.store.get(info.key)) for info in bucket.store.list()}
    with pytest.raises(NotProvedError, match=r"the producer state before offset \d+ is not in the bucket"):
        bucket.repair()
    assert {info.key: bytes(bucket.store.get(info.key)) for info in bucket.store.list()} == before


@pytest.mark.parametrize("lost", ["everything", "manifest", "records"])
def test_behind_a_gap_no_index_is_made_up(bucket: Bucket, lost: str) -> None:
    """A transaction may have begun in or before the gap, where records are still read."""
    manifest = next(each for each in bucket.with_aborts() if bucket.segments.index(each) >= 2)
    before = bucket.segments[bucket.segments.index(manifest) - 1]
    bucket.spoil(manifest, TXN)
    gone = {
        "everything": before.objects.keys() | {MANIFEST},
        "manifest": {MANIFEST},
        "records": {LOG, SNAPSHOT},
    }[lost]
    bucket.spoil(before, *gone, how="lose")
    was = bytes(bucket.store.get(manifest.key(MANIFEST)))
    with pytest.raises(Exception, match=r"is unknown|there is no such object"):
        bucket.repair()
    assert bytes(bucket.store.get(manifest.key(MANIFEST))) == was


def test_a_damaged_batch_in_the_history_is_named(bucket: Bucket) -> None:
    manifest = next(each for each in bucket.with_aborts() if bucket.segments.index(each) >= 1)
    before = bucket.segments[bucket.segments.index(manifest) - 1]
    bucket.spoil(manifest, TXN)
    bucket.spoil(before, LOG, SNAPSHOT)
    with pytest.raises(Exception, match="damaged"):
        bucket.repair()


def test_the_later_leader_is_believed_where_two_histories_reach_to_the_segment(bucket: Bucket) -> None:
    """An older leader's copy of the segment before, whose producers had another fate, counts for nothing."""
    manifest = next(
        each
        for each in bucket.with_aborts()
        if bucket.segments.index(each) >= 1 and max(bucket.segments[bucket.segments.index(each) - 1].leader_epochs) > 0
    )
    before = bucket.segments[bucket.segments.index(manifest) - 1]
    other = replace(
        before,
        segment_id=manifest.topic_id,
        leader_epochs={0: before.base_offset},
        event_timestamp=before.event_timestamp + 1,
    )
    for kind in other.objects:
        bucket.store.put(
            other.key(kind),
            bucket.store.get(bucket.segments[0].key(kind)) if kind is SNAPSHOT else bucket.store.get(before.key(kind)),
        )
    bucket.store.put(other.key(MANIFEST), other.to_json())
    for spoilt in ((TXN,), (TXN, EPOCHS)):
        bucket.spoil(manifest, *spoilt)
        for planned in plan_repair(
            [
                one
                for one in audit_bucket(bucket.store, AuditOptions(later(), 0, deep=True)).findings
                if one.segment_id == manifest.segment_id
            ],
            later(),
            0,
        ).mends:
            carry_out(bucket.store, planned.mend)
        assert bytes(bucket.store.get(manifest.key(TXN))) == bucket.objects[manifest.key(TXN)]


def test_no_transaction_is_reported_twice(bucket: Bucket) -> None:
    manifest = bucket.with_aborts()[0]
    entries = list(decode_entries(bucket.objects[manifest.key(TXN)]))
    bucket.spoil(manifest, TXN)
    bucket.repair()
    remade: list[AbortedTransaction] = list(decode_entries(bytes(bucket.store.get(manifest.key(TXN)))))
    assert remade == entries
    assert bucket.repair() == []
