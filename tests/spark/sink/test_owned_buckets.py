"""Jobs that write leave a bucket alone that brokers tier: those would never see it, and give the same offsets again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

from stratalog.errors import NotOwnerError
from stratalog.jobs.compaction.run import compact_bucket
from stratalog.jobs.executor import THREADS, Executor
from stratalog.jobs.index.result import Outcome
from stratalog.jobs.index.run import convert_indexes, rebuild_indexes
from stratalog.jobs.restore.records import restore_to_bucket
from stratalog.remote.ownership.bucket_owner import (
    DIRECTORY,
    BrokerLife,
    BucketOwner,
    give_up,
    replace_owner,
    take_over,
)
from stratalog.remote.ownership.owner_file import OWNERSHIP_FILE
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.spark.sink.writer import BulkWriter
from tests.remote.test_ownership import claim
from tests.remote.world import World
from tests.spark.sink.test_targets import SCHEMA, Place, rows, write

#: Refused before there is anything to do with it.
NO_SPARK: Any = None


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place("remote", tmp_path)


@pytest.fixture
def store(place: Place) -> ObjectStore:
    return ObjectStore.from_url(place.directory.as_uri())


@pytest.fixture(autouse=True)
def _no_stragglers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratalog.spark.sink.bucket._SWEEP_AFTER_SECONDS", 0)


def segments(store: ObjectStore) -> dict[str, int]:
    return {info.key: info.size for info in store.list() if not info.key.startswith((DIRECTORY, "_publications"))}


def tiered_by_a_broker(place: Place, store: ObjectStore, *, is_owned: bool) -> None:
    """The topic `t`, as a broker copied it."""
    with World(place.directory.parent / "world", store=store) as world:
        world.append(60)
        assert world.tier().copied > 0
    if is_owned:
        brokers = {1: BrokerLife("killed", running=False)}
        assert replace_owner(store, None, BucketOwner("production", "stopped", brokers)) is not None


def refused_jobs(place: Place) -> dict[str, Callable[[], object]]:
    url = place.directory.as_uri()
    return {
        "a bulk write": lambda: write(place, [[rows(["a", "b"])]]),
        "a compaction": lambda: compact_bucket(url, topics=["t"], grace_seconds=0),
        "spark index rebuild": lambda: rebuild_indexes(remote=url),
        "spark index convert": lambda: convert_indexes(12, remote=url),
    }


@pytest.mark.parametrize("job", ["a bulk write", "a compaction", "spark index rebuild", "spark index convert"])
@pytest.mark.parametrize("is_owned", [True, False])
def test_a_topic_that_brokers_copied_is_refused_and_nothing_is_changed(
    place: Place, store: ObjectStore, job: str, is_owned: bool
) -> None:
    tiered_by_a_broker(place, store, is_owned=is_owned)
    before = segments(store)
    whose = "belongs to cluster production" if is_owned else "a broker copied t-"
    with pytest.raises(NotOwnerError, match=rf"{job} is refused: .*{whose}.*--give-up"):
        refused_jobs(place)[job]()
    assert segments(store) == before


def test_a_new_topic_beside_those_of_brokers_is_refused_too(place: Place, store: ObjectStore) -> None:
    take_over(store, "production")
    with pytest.raises(NotOwnerError, match=r"write through its brokers \(kafka.bootstrap.servers\)"):
        write(place, [[rows(["a"])]])
    assert segments(store) == {}


def test_an_owner_that_comes_while_a_job_runs_is_seen_before_anything_is_visible(
    place: Place, store: ObjectStore
) -> None:
    write(place, [[rows(["before"])]])
    before = segments(store)
    writer = BulkWriter(place.options(), SCHEMA, overwrite=False)
    message = writer.write(iter([rows(["a", "b"])]))
    take_over(store, "production")
    with pytest.raises(NotOwnerError):
        writer.commit([message])
    assert segments(store) == before
    assert place.records() == {0: [(0, "before")]}


def test_a_bucket_without_brokers_and_one_that_was_given_up_are_written(place: Place, store: ObjectStore) -> None:
    write(place, [[rows(["a"])]])
    take_over(store, "production")
    give_up(store)
    write(place, [[rows(["b"])]])
    assert place.records() == {0: [(0, "a"), (1, "b")]}


def test_a_restore_into_a_bucket_that_has_an_owner_is_refused(place: Place, store: ObjectStore, tmp_path: Path) -> None:
    tiered_by_a_broker(place, store, is_owned=True)
    target = ObjectStore.from_url((tmp_path / "other").as_uri())
    take_over(target, "somebody else")
    with pytest.raises(NotOwnerError, match="a restore into it is refused: the bucket belongs to cluster somebody"):
        restore_to_bucket(place.directory.as_uri(), target.url)
    assert segments(target) == {}


def test_indexes_of_an_owned_bucket_are_written_with_the_directory_of_its_stopped_broker_alone(
    place: Place, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = place.directory.as_uri()

    def rebuild(*directories: Path, executor: Executor = THREADS) -> set[Outcome]:
        done = rebuild_indexes(paths=directories, remote=url, executor=executor)
        return {each.outcome for each in done.changes}

    with World(tmp_path / "world", store=store) as world:
        world.append(60)
        assert world.tier().copied > 0
        before = segments(store)
        run, copy, other = (tmp_path / name for name in ("run", "copy", "other"))
        for directory in (run, copy, other):
            directory.mkdir()
        claim(store, run).ensure()
        shutil.copy(run / OWNERSHIP_FILE, copy)
        claim(store, run).ensure()
        for wrong in (copy, other):
            with pytest.raises(NotOwnerError, match="no data directory that was given is the last one"):
                rebuild(wrong)
        assert segments(store) == before
        assert rebuild(run) == rebuild(copy, run) == {Outcome.REBUILT}
        assert rebuild_indexes(remote=url, dry_run=True).changes

        class TakenOver:
            """An executor before whose tasks the bucket gets another owner."""

            def map(self, work: Callable[[Any], Any], tasks: Iterable[Any], **more: Any) -> Generator[Any, None, None]:
                if "rebuild" in more["title"]:
                    take_over(store, "another")
                return THREADS.map(work, tasks, **more)

        with pytest.raises(NotOwnerError, match="belongs to cluster another"):
            rebuild(run, executor=TakenOver())
