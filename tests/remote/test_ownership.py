"""One owner of a bucket: of several that take it one has it, and who has lost it neither copies nor deletes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
from typing_extensions import Buffer

from stratalog.errors import (
    DamagedOwnerError,
    NotOwnerError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from stratalog.remote.api import RemotePartitionDeleteState
from stratalog.remote.ownership.broker_ownership import BrokerOwnership, Claimant
from stratalog.remote.ownership.bucket_owner import (
    DIRECTORY,
    BrokerLife,
    BucketOwner,
    check_no_owner,
    generations,
    give_up,
    owners,
    read_owner,
    replace_owner,
    take_over,
)
from stratalog.remote.ownership.owner_file import OWNERSHIP_FILE, OwnershipFile
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.testing.faulty_store import FaultPlan, FaultyObjectStore, SimulatedCrash, StoreFault
from tests.remote.world import TOPIC_ID, World
from tests.support.s3_server import S3Server, require_s3_server


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    require_s3_server()
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(params=["memory", "directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "memory":
        return ObjectStore.from_url("memory:///")
    if request.param == "directory":
        return ObjectStore.from_url((tmp_path / "bucket").as_uri())
    server = request.getfixturevalue("s3")
    return ObjectStore.from_url(server.url(f"bucket/{tmp_path.name}"), server.options)


def claim(
    store: ObjectStore, directory: Path, cluster: str = "production", *, node: int = 1, topic: UUID = TOPIC_ID
) -> BrokerOwnership:
    """That of a process which has just started on `directory`."""
    directory.mkdir(exist_ok=True)
    claimant = Claimant(cluster, node, OwnershipFile(directory), lambda topic_id: topic_id == topic)
    return BrokerOwnership(store, claimant)


def owned(world: World, directory: str = "data", cluster: str = "production") -> BrokerOwnership:
    """The world's broker with a claim to its bucket."""
    ownership = claim(world.store, world.path / directory, cluster)
    world.rsm.own(ownership)
    return ownership


# --- the object -------------------------------------------------------------------------------------------------------


def test_of_many_that_take_a_bucket_at_the_same_time_one_has_it(store: ObjectStore) -> None:
    for _ in range(3):
        before = read_owner(store)
        with ThreadPoolExecutor(8) as pool:
            taken = list(
                pool.map(
                    lambda n, before=before: replace_owner(store, before, BucketOwner(f"cluster-{n}", "test")),
                    range(8),
                )
            )
        (winner,) = [owner for owner in taken if owner is not None]
        assert read_owner(store) == winner


def test_an_owner_reads_as_it_was_written_and_the_last_ones_are_kept(store: ObjectStore) -> None:
    brokers = {1: BrokerLife("a", running=True), 7: BrokerLife("b", running=False)}
    made = replace_owner(store, None, BucketOwner("one", "started", brokers))
    assert made is not None
    assert read_owner(store) == made
    assert (made.generation, made.running, made.brokers) == (1, [1], brokers)
    for n in range(20):
        take_over(store, f"cluster-{n}")
    found = owners(store)
    assert [owner.generation for owner in found] == list(range(6, 22))
    assert found[-1].cluster_id == "cluster-19"


class SlowStore(FaultyObjectStore):
    """A client that creates through it is so slow that, before that happens, `concurrently` does."""

    concurrently: Callable[[], object] | None = None

    def create(self, key: str, data: Buffer) -> bool:
        if self.concurrently is not None:
            function, self.concurrently = self.concurrently, None
            function()
        return super().create(key, data)


def test_who_was_so_slow_that_his_number_is_free_again_has_not_got_it() -> None:
    inner = ObjectStore.from_url("memory:///")
    slow = SlowStore(inner, FaultPlan())

    def others() -> None:
        for n in range(20):
            take_over(inner, f"cluster-{n}")

    slow.concurrently = others
    assert replace_owner(slow, None, BucketOwner("slow", "test")) is None
    owner = read_owner(inner)
    assert owner is not None
    assert owner.cluster_id == "cluster-19"


def test_a_lost_answer_takes_nothing_from_who_had_it() -> None:
    inner = ObjectStore.from_url("memory:///")
    for step in range(1, 5):
        faults = FaultPlan()
        faults.at(step, StoreFault.LOST_ANSWER)
        before = read_owner(inner)
        with suppress(RetriableRemoteStorageError):
            replace_owner(FaultyObjectStore(inner, faults), before, BucketOwner(f"c{step}", "test"))
        now = read_owner(inner)
        assert now is not None
        assert now.cluster_id in (f"c{step}", None if before is None else before.cluster_id)


def test_what_cannot_be_read_as_an_owner_is_no_leave_to_write(store: ObjectStore) -> None:
    store.put(f"{DIRECTORY}/{1:020d}.json", b'{"format": "stratalog-bucket-owner", "version": 2}')
    with pytest.raises(RemoteStorageError, match=r"has version 2, and 1 is the last that this release knows"):
        check_no_owner(store, "a test")


# --- a broker ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [b"", b'{"format": "stratalog-bucket-owner", "ver', b"\xff\xfe", b"null", b"[" * 100_000]
)
def test_what_is_damaged_stops_all_writers_until_an_operator_decides(data: bytes, tmp_path: Path) -> None:
    store = ObjectStore.from_url("memory:///")
    production = claim(store, tmp_path / "one")
    production.ensure()
    store.put(f"{DIRECTORY}/{2:020d}.json", data)
    for looks in (production.ensure, lambda: owners(store), lambda: check_no_owner(store, "a job")):
        with pytest.raises(DamagedOwnerError, match=r"2\.json is damaged.*tier owner memory:.* --take-over"):
            looks()
    taken = take_over(store, "production", node_id=1)
    assert [each.generation for each in owners(store)] == [1, taken.generation] == [1, 3]
    claim(store, tmp_path / "one").ensure()
    store.put(f"{DIRECTORY}/{5:020d}.json", data)
    assert give_up(store).generation == 6


def test_the_owner_that_a_later_release_wrote_is_not_replaced() -> None:
    store = ObjectStore.from_url("memory:///")
    store.put(f"{DIRECTORY}/{1:020d}.json", b'{"format": "stratalog-bucket-owner", "version": 2}')
    for decides in (lambda: take_over(store, "production"), lambda: give_up(store), lambda: owners(store)):
        with pytest.raises(RemoteStorageError, match="has version 2, and 1 is the last that this release knows"):
            decides()
    assert len(generations(store)) == 1


def test_the_first_has_an_empty_bucket_and_another_cluster_is_refused(store: ObjectStore, tmp_path: Path) -> None:
    first, second = claim(store, tmp_path / "one"), claim(store, tmp_path / "two", "other")
    first.ensure()
    for _ in range(2):
        with pytest.raises(NotOwnerError, match=r"belongs to cluster production .*tier owner .*--take-over"):
            second.ensure()
    first.ensure()


def test_an_owner_that_was_taken_over_knows_at_its_next_look(store: ObjectStore, tmp_path: Path) -> None:
    first, second = claim(store, tmp_path / "one"), claim(store, tmp_path / "two", "other")
    first.ensure()
    take_over(store, "other")
    with pytest.raises(NotOwnerError, match="has been taken over by cluster other"):
        first.ensure()
    second.ensure()
    with pytest.raises(NotOwnerError, match="has been taken over by cluster other"):
        first.ensure()


def test_a_restart_goes_on_whether_the_stop_was_clean_or_not(store: ObjectStore, tmp_path: Path) -> None:
    for is_clean in (False, True, False, False, True):
        process = claim(store, tmp_path / "one")
        process.ensure()
        owner = read_owner(store)
        assert owner is not None
        assert owner.running == [1]
        if is_clean:
            process.release()
            owner = read_owner(store)
            assert owner is not None
            assert owner.running == []
            assert owner.cluster_id == "production"  # stopped, not given up


def test_of_two_processes_of_one_directory_the_later_one_goes_on(tmp_path: Path) -> None:
    store = ObjectStore.from_url("memory:///")
    first, second = claim(store, tmp_path / "one"), claim(store, tmp_path / "one")
    first.ensure()
    second.ensure()
    with pytest.raises(NotOwnerError, match="was taken from this process"):
        first.ensure()
    second.ensure()


def test_an_old_copy_of_a_data_directory_is_refused_until_an_operator_takes_it(tmp_path: Path) -> None:
    store = ObjectStore.from_url("memory:///")
    claim(store, tmp_path / "one").ensure()
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    current = claim(store, tmp_path / "one")
    current.ensure()
    for directory in ("copy", "lost its file"):
        with pytest.raises(NotOwnerError, match=r"is an old copy.*tier restore memory:.* --metadata-only --take-over"):
            claim(store, tmp_path / directory).ensure()
    current.ensure()
    take_over(store, "production", node_id=1)
    claim(store, tmp_path / "copy").ensure()
    with pytest.raises(NotOwnerError, match="was taken from this process"):
        current.ensure()


def test_a_bucket_that_was_copied_to_another_url_is_still_its_owners(tmp_path: Path) -> None:
    here, there = ObjectStore.from_url("memory://here"), ObjectStore.from_url("memory://there")
    claim(here, tmp_path / "one").ensure()
    for info in here.list():
        there.put(info.key, here.get(info.key))
    claim(there, tmp_path / "one").ensure()
    with pytest.raises(NotOwnerError, match="is an old copy"):
        claim(there, tmp_path / "lost its file").ensure()


def test_brokers_of_one_cluster_share_a_bucket(tmp_path: Path) -> None:
    store = ObjectStore.from_url("memory:///")
    brokers = [claim(store, tmp_path / f"{node}", node=node) for node in range(3)]
    for _ in range(2):
        for broker in brokers:
            broker.ensure()
    again = claim(store, tmp_path / "1", node=1)
    again.ensure()
    brokers[0].ensure()
    with pytest.raises(NotOwnerError):
        brokers[1].ensure()
    take_over(store, "production", node_id=2)
    brokers[0].ensure()


def test_a_process_killed_at_any_step_of_its_claim_leaves_the_next_one_in_its_rights(tmp_path: Path) -> None:
    store = ObjectStore.from_url("memory:///")
    for step in range(1, 12):
        for fault in (StoreFault.CRASH, StoreFault.CRASH_AFTER, StoreFault.LOST_ANSWER, StoreFault.UNAVAILABLE):
            faults = FaultPlan()
            faults.at(step, fault)
            process = claim(FaultyObjectStore(store, faults), tmp_path / "one")
            with suppress(SimulatedCrash, RetriableRemoteStorageError):
                process.ensure()
            if fault in (StoreFault.LOST_ANSWER, StoreFault.UNAVAILABLE):
                faults.heal()
                process.ensure()  # the next turn of a task, in the same process
    claim(store, tmp_path / "one").ensure()


def test_a_bucket_that_was_given_up_is_the_next_ones_and_its_old_owner_stops(tmp_path: Path) -> None:
    store = ObjectStore.from_url("memory:///")
    first = claim(store, tmp_path / "one")
    first.ensure()
    with pytest.raises(NotOwnerError, match="a test is refused: the bucket belongs to cluster production"):
        check_no_owner(store, "a test")
    give_up(store)
    check_no_owner(store, "a test")
    with pytest.raises(NotOwnerError, match="given up"):
        first.ensure()
    claim(store, tmp_path / "two", "other").ensure()


class Careless(FaultyObjectStore):
    """A store that puts an object in the place of another although it is asked not to."""

    def create(self, key: str, data: Buffer) -> bool:
        self.put(key, data)
        return True


def test_where_a_store_has_no_conditional_puts_the_one_whose_object_was_replaced_sees_it(
    tmp_path: Path,
) -> None:
    store = Careless(ObjectStore.from_url("memory:///"), FaultPlan())
    first = claim(store, tmp_path / "one")
    first.ensure()
    assert replace_owner(store, None, BucketOwner("other", "at the same time")) is not None
    with pytest.raises(NotOwnerError, match="taken over by cluster other"):
        first.ensure()


# --- buckets from before ----------------------------------------------------------------------------------------------


def test_a_bucket_from_before_is_adopted_by_who_knows_its_topics_alone(tmp_path: Path) -> None:
    with World(tmp_path / "world") as world:
        world.append(60)
        assert world.tier().copied > 0
        with pytest.raises(NotOwnerError, match="no owner of the bucket is recorded"):
            claim(world.inner, tmp_path / "two", "other", topic=UUID(int=5)).ensure()
        assert not generations(world.inner)
        claim(world.inner, tmp_path / "one").ensure()
        assert len(generations(world.inner)) == 1


# --- what is not done without -----------------------------------------------------------------------------------------


def test_who_lost_the_bucket_neither_copies_nor_deletes_nor_gives_up_local_data(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        owned(world)
        world.append(60)
        world.tier()
        take_over(world.inner, "other")
        before, start = world.objects(), world.log.log_start_offset
        world.append(60)
        with pytest.raises(NotOwnerError, match="taken over by cluster other"):
            world.tier()
        world.configure(retention_ms=0)
        world.clock.advance(1)
        with pytest.raises(NotOwnerError):
            world.manager._of(world.partition).expire()
        assert world.log.log_start_offset == start
        world.configure(retention_ms=-1)
        world.drop_local()
        assert world.objects() == before
        world.expect_everything()


def test_a_takeover_while_a_segment_is_on_its_way_leaves_no_manifest_of_it(tmp_path: Path) -> None:
    """The look before the upload was good; the one before the manifest is not."""
    with World(tmp_path) as world:
        owned(world)
        world.append(20)
        world.tier()

        taken: list[object] = []

        def choose(what: str) -> None:
            if what.endswith(".log") and not taken:
                taken.append(take_over(world.inner, "other"))

        world.append(60)
        manifests = [key for key in world.objects() if key.endswith("manifest.json")]
        world.faults.by(choose)
        with pytest.raises(NotOwnerError):
            world.tier()
        assert [key for key in world.objects() if key.endswith("manifest.json")] == manifests
        world.expect_everything()


def test_the_deletion_of_a_partition_waits_while_another_cluster_owns_the_bucket(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        owned(world)
        world.append(60)
        world.tier()
        owner = read_owner(world.inner)
        take_over(world.inner, "other")
        before = world.objects()
        deletions = world.manager._deletions
        deletions._publish(world.partition, RemotePartitionDeleteState.DELETE_PARTITION_MARKED)
        for _ in range(2):
            with pytest.raises(NotOwnerError):
                deletions._delete(world.partition)
        assert world.objects() == before
        assert owner is not None
        now = read_owner(world.inner)
        assert now is not None
        assert replace_owner(world.inner, now, BucketOwner("production", "back", owner.brokers)) is not None
        deletions._delete(world.partition)
        assert all(key.startswith(DIRECTORY) for key in world.objects())


def test_a_directory_that_only_reads_forgets_what_it_deletes_and_the_bucket_keeps_it(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        owned(world)
        world.append(60)
        world.tier()
        OwnershipFile(tmp_path / "data").set_read_only(True)
        copy = owned(world)
        assert copy.is_read_only
        before = world.objects()
        world.append(60)
        assert world.tier().copied == 0
        world.expect_everything()
        world.configure(retention_ms=0)
        world.clock.advance(1)
        assert world.tier().deleted > 0
        assert world.objects() == before
        assert not [s for s in world.rlmm.list_remote_log_segments(world.partition) if s.is_readable]


def test_a_store_that_cannot_be_reached_is_asked_again_at_the_next_copy(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        owned(world)
        world.append(60)
        world.faults.always(StoreFault.UNAVAILABLE)
        with pytest.raises(RetriableRemoteStorageError):
            world.tier()
        world.faults.heal()
        assert world.tier().copied > 0
        owner = read_owner(world.inner)
        assert owner is not None
        assert owner.cluster_id == "production"


def test_a_file_of_another_version_is_named(tmp_path: Path) -> None:
    (tmp_path / OWNERSHIP_FILE).write_text('{"format": "stratalog-remote-ownership", "version": 9}')
    with pytest.raises(Exception, match=r"remote-ownership.json does not say what .*version 9"):
        claim(ObjectStore.from_url("memory:///"), tmp_path)
