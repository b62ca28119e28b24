"""Files that are replaced or go away after or while a query is planned: the same rows, or an error, never others."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.inspect.byte_sources import ByteSources
from stratalog.log.format.checkpoints import encode_partition_metadata
from stratalog.log.scan import list_segments
from stratalog.spark.model.split_plan import SplitPlan
from stratalog.spark.options.data_loss import DataLossError, on_data_loss
from stratalog.spark.options.read_options import ReadOptions
from stratalog.spark.planning.filters import Constraints
from stratalog.spark.planning.intervals import EVERYTHING
from stratalog.spark.planning.planner import Planner
from stratalog.spark.reading.decode import Selection
from stratalog.spark.reading.split_reader import SplitReader
from stratalog.util.filesystem import File, FileSystem, StrPath
from tests.log.cleaner.compacted import Compacted
from tests.spark.partitions import T0, Batch, Partition, steady

TOPIC_ID = uuid.UUID("0123456789abcdef0123456789abcdef")


class Query:
    """Plans when it is made, reads when it is asked to."""

    def __init__(self, root: Path | None, topic: str, fs: FileSystem | None = None, **more: str) -> None:
        where = {} if root is None else {"path": str(root)}
        self.options = ReadOptions.parse({"subscribe": topic, "splitBytes": "2k"} | where | more)
        self.places = ByteSources.of(self.options)
        if fs is not None:
            self.places.fs = fs
        self.plans: list[SplitPlan] = Planner(self.options, Constraints(), self.places).plan()

    def rows(self) -> list[tuple[int, bytes | None]]:
        reader = SplitReader(self.places, on_data_loss(self.options.fail_on_data_loss))
        selection = Selection(("offset", "key"), EVERYTHING)
        return [
            (row["offset"], row["key"])
            for plan in self.plans
            for batch in reader.read(plan, selection)
            for row in batch.to_pylist()
        ]


def compacted(root: Path) -> Compacted:
    log = Compacted(root)
    (log.directory / "partition.metadata").write_bytes(encode_partition_metadata(TOPIC_ID))
    for number in range(240):
        log.put(number % 90, number)
        if number % 20 == 19:
            log.roll()
    return log


def purge(log: Compacted) -> None:
    for path in log.directory.glob("*.deleted"):
        path.unlink()


def newest(log: Compacted) -> dict[bytes | None, int]:
    return {record.key: record.offset for record in log.records()}


def check(rows: list[tuple[int, bytes | None]], expected: dict[bytes | None, int]) -> None:
    """Every key is there with its newest record, and no offset twice."""
    offsets = [offset for offset, _ in rows]
    assert len(offsets) == len(set(offsets))
    assert {key: max(o for o, k in rows if k == key) for _, key in rows} == expected


@pytest.mark.parametrize("purged", [False, True])
def test_a_log_that_is_compacted_between_planning_and_reading_gives_every_key(tmp_path: Path, purged: bool) -> None:
    log = compacted(tmp_path)
    query = Query(tmp_path, "latest")
    expected = newest(log)
    before = len(query.plans)
    log.clean()
    if purged:
        purge(log)
    assert before > 6
    check(query.rows(), expected)


def test_a_log_that_is_compacted_again_and_again_while_it_is_read_gives_every_key(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    query = Query(tmp_path, "latest")
    expected = newest(log)
    reader = SplitReader(query.places, on_data_loss(True))
    rows: list[tuple[int, bytes | None]] = []
    for number, plan in enumerate(query.plans):
        log.put(1000 + number)  # not of the plan
        log.roll()
        log.clean(first=0)
        purge(log)
        for batch in reader.read(plan, Selection(("offset", "key"), EVERYTHING)):
            rows += [(row["offset"], row["key"]) for row in batch.to_pylist()]
    check(rows, expected)


def test_scans_beside_a_cleaner_that_never_rests_lose_no_key(tmp_path: Path) -> None:
    """Of every key each scan has the newest record below its end, unless the key has got one behind it since."""
    log = compacted(tmp_path)
    written: dict[bytes, list[int]] = {}
    for record in log.records():
        written.setdefault(record.key or b"", []).append(record.offset)
    stop, failed = threading.Event(), list[BaseException]()

    def churn() -> None:
        number = 0
        try:
            while not stop.is_set():
                for _ in range(15):
                    number += 7
                    written[b"%d" % (number % 90)].append(log.put(number % 90, number))
                log.roll()
                log.clean()
                if number % 2:
                    purge(log)
        except BaseException as error:
            failed.append(error)

    churning = threading.Thread(target=churn)
    churning.start()
    try:
        for _ in range(25):
            query = Query(tmp_path, "latest", splitBytes="1k")
            end = max(piece.end for plan in query.plans for piece in plan.pieces)
            rows = query.rows()
            offsets = [offset for offset, _ in rows]
            assert len(offsets) == len(set(offsets))
            assert offsets == sorted(offsets)
            for key, all_of_it in {key: list(found) for key, found in written.items()}.items():
                newest = max(offset for offset in all_of_it if offset < end)
                # What was put last may be in the log and not yet be noted here: what was read counts as written, too.
                read = max((offset for offset, of_key in rows if of_key == key), default=-1)
                assert read >= newest or all_of_it[-1] >= end, (key, newest, read, end)
    finally:
        stop.set()
        churning.join()
    assert not failed


class RenamedAfterListing(FileSystem):
    """Swaps a segment in for the one of its base offset in the second listing; names it plainly before its use."""

    def __init__(self, replaced: Path) -> None:
        self.replaced, self.listings = replaced, 0
        self.swap = replaced.with_name(replaced.name + ".swap")
        self.is_swapped = False

    def list_inodes(self, path: StrPath) -> dict[str, int]:
        self.listings += Path(path) == self.replaced.parent
        if self.listings == 2 and not self.is_swapped:
            self.is_swapped = True
            shutil.copy(self.replaced, self.swap)
            self.replaced.rename(self.replaced.with_name(self.replaced.name + ".deleted"))
        return super().list_inodes(path)

    def size(self, path: StrPath) -> int:
        self._name_plainly(path)
        return super().size(path)

    def open(self, path: StrPath, *, write: bool = False, create: bool = False) -> File:
        self._name_plainly(path)
        return super().open(path, write=write, create=create)

    def _name_plainly(self, path: StrPath) -> None:
        if Path(path) == self.swap and self.swap.exists():
            self.swap.rename(self.replaced)


@pytest.mark.parametrize("number", [0, 3, 8])
def test_a_segment_that_is_swapped_for_one_of_its_base_offset_during_a_listing_is_listed(
    tmp_path: Path, number: int
) -> None:
    log = compacted(tmp_path)
    listed = list_segments(log.directory)
    found = list_segments(log.directory, RenamedAfterListing(listed[number].log))
    assert [each.base_offset for each in found] == [each.base_offset for each in listed]
    assert all(each.log.exists() for each in found)


@pytest.mark.parametrize("number", [0, 3, 8])
def test_a_segment_that_is_swapped_for_one_of_its_base_offset_during_planning_is_read(
    tmp_path: Path, number: int
) -> None:
    log = compacted(tmp_path)
    fs = RenamedAfterListing(list_segments(log.directory)[number].log)
    query = Query(tmp_path, "latest", fs)
    assert fs.listings > 2
    assert [offset for offset, _ in query.rows()] == list(range(240))


class Watched(FileSystem):
    """Calls `after` when something was renamed, and `before` when something is opened for reading."""

    after: Callable[[], None] = staticmethod(lambda: None)
    before: Callable[[StrPath], None] = staticmethod(lambda _: None)

    def rename(self, source: StrPath, target: StrPath) -> None:
        super().rename(source, target)
        self.after()

    def open(self, path: StrPath, *, write: bool = False, create: bool = False) -> File:
        if not write and not create:
            self.before(path)
        return super().open(path, write=write, create=create)


def test_a_replacement_is_seen_whole_at_each_of_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = compacted(tmp_path)
    expected, looks = newest(log), 0

    def look() -> None:
        nonlocal looks
        looks += 1
        check(Query(tmp_path, "latest").rows(), expected)

    watched = Watched()
    monkeypatch.setattr(watched, "after", look)
    monkeypatch.setattr(log.log._local, "fs", watched)
    for segment in log.log.segments:
        monkeypatch.setattr(segment, "_fs", watched, raising=False)
    log.clean()
    assert looks > 10


@pytest.mark.parametrize("name", ["00000000000000000000.log", "00000000000000000100.log"])
@pytest.mark.parametrize("at", range(1, 7))
def test_a_log_that_is_compacted_while_a_query_is_planned(tmp_path: Path, name: str, at: int) -> None:
    log = compacted(tmp_path)
    expected = newest(log)
    watched, opened = Watched(), 0

    def clean(path: StrPath) -> None:
        nonlocal opened
        if str(path).endswith(name):
            opened += 1
            if opened == at:
                log.clean()
                purge(log)

    watched.before = clean
    query = Query(tmp_path, "latest", watched)
    watched.before = lambda _: None
    check(query.rows(), expected)


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("records", [10, 20, 40])
def test_a_topic_that_was_made_again_gives_none_of_its_new_rows(tmp_path: Path, fail: str, records: int) -> None:
    old = Partition(tmp_path, index_interval=100)
    old.segment(steady(4))
    old.segment(steady(4))
    query = Query(tmp_path, "orders", failOnDataLoss=fail)
    shutil.rmtree(old.directory)
    new = Partition(tmp_path, index_interval=100)
    (new.directory / "partition.metadata").write_bytes(encode_partition_metadata(TOPIC_ID))
    new.segment([Batch([T0] * records, value_size=30)])
    if fail == "true":
        with pytest.raises(DataLossError, match="orders-0 lacks the offsets from 0"):
            query.rows()
    else:
        assert query.rows() == []


def test_a_topic_that_was_made_again_with_the_very_same_bytes_is_another_one(tmp_path: Path) -> None:
    old = Partition(tmp_path)
    old.segment(steady(4))
    query = Query(tmp_path, "orders")
    (old.directory / "partition.metadata").write_bytes(encode_partition_metadata(TOPIC_ID))
    with pytest.raises(DataLossError, match="is of another topic since the query was planned"):
        query.rows()


def test_a_replaced_file_of_a_topic_without_an_id_is_a_loss(tmp_path: Path) -> None:
    """Nothing tells such a topic from the next one of its name."""
    log = compacted(tmp_path)
    (log.directory / "partition.metadata").unlink()
    query = Query(tmp_path, "latest")
    log.clean()
    purge(log)
    with pytest.raises(DataLossError, match="not known to be of the same topic"):
        query.rows()


def test_a_segment_that_retention_deletes_concurrently_is_a_loss(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    bases = [partition.segment(steady(4)) for _ in range(3)]
    query = Query(tmp_path, "orders")
    partition.drop_local(bases[0])
    with pytest.raises(DataLossError, match="orders-0 lacks the offsets from 0 to 19"):
        query.rows()
    query = Query(tmp_path, "orders", failOnDataLoss="false")
    partition.drop_local(bases[1])
    assert [offset for offset, _ in query.rows()] == list(range(40, 60))


def test_a_log_that_was_opened_since_planning_is_read_on_where_it_goes_on(tmp_path: Path) -> None:
    """The active segment grows, and what was planned of it stays what it was."""
    log = compacted(tmp_path)
    log.put(5)
    expected = newest(log)
    query = Query(tmp_path, "latest")
    for key in range(30):
        log.put(key)
    check(query.rows(), expected)


def test_each_part_of_a_replaced_remote_segment_is_read_once(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "data", index_interval=100)
    bucket = f"file://{tmp_path}/bucket"
    partition.upload(bucket, partition.segment(steady(60)))
    query = Query(None, "orders", remote=bucket)
    assert len(query.plans) > 3
    assert [offset for offset, _ in query.rows()] == list(range(300))
    (before,) = list((tmp_path / "bucket").rglob("*.log"))
    rewritten = Partition(tmp_path / "rewritten", index_interval=100)
    rewritten.upload(bucket, rewritten.segment(steady(60)))
    for each in (tmp_path / "bucket").rglob(f"{before.stem}*"):
        each.unlink()
    assert [offset for offset, _ in query.rows()] == list(range(300))


@pytest.mark.parametrize(("gone", "lost"), [(0, "from 0 to 99"), (200, "from 200 to 299")])
def test_retention_takes_from_the_ends_of_a_compacted_topic_and_that_is_a_loss(
    tmp_path: Path, gone: int, lost: str
) -> None:
    """Compaction leaves a segment before and one behind what it took."""
    kind = {"cleanup.policy": "compact,delete"}
    partition = Partition(tmp_path / "data", index_interval=100, topic_config=kind)
    bucket = f"file://{tmp_path}/bucket"
    partition.upload(bucket, partition.segment(steady(60)))
    query = Query(None, "orders", remote=bucket, failOnDataLoss="false", splitBytes="1m")
    strict = Query(None, "orders", remote=bucket, splitBytes="1m")
    for each in (tmp_path / "bucket").rglob("*"):
        if each.is_file():
            each.unlink()
    rewritten = Partition(tmp_path / "rewritten", index_interval=100, topic_config=kind)
    for base in [rewritten.segment(steady(20)) for _ in range(3)]:
        if base != gone:
            rewritten.upload(bucket, base)
    assert [offset for offset, _ in query.rows()] == [n for n in range(300) if not gone <= n < gone + 100]
    with pytest.raises(DataLossError, match=f"has no offsets {lost} in the remote tier"):
        strict.rows()


def test_what_compaction_took_between_two_remote_segments_is_no_loss(tmp_path: Path) -> None:
    kind = {"cleanup.policy": "compact"}
    partition = Partition(tmp_path / "data", topic_config=kind)
    bucket = f"file://{tmp_path}/bucket"
    partition.upload(bucket, partition.segment(steady(60)))
    query = Query(None, "orders", remote=bucket)
    for each in (tmp_path / "bucket").rglob("*"):
        if each.is_file():
            each.unlink()
    rewritten = Partition(tmp_path / "rewritten", index_interval=100, topic_config=kind)
    bases = [rewritten.segment(steady(20)) for _ in range(3)]
    rewritten.upload(bucket, bases[0])
    rewritten.upload(bucket, bases[2])
    assert [offset for offset, _ in query.rows()] == [*range(100), *range(200, 300)]


def test_segments_of_a_swap_that_a_crash_cut_short_are_listed_as_the_next_opening_leaves_them(
    tmp_path: Path,
) -> None:
    def names(*made: str) -> list[str]:
        for path in tmp_path.iterdir():
            path.unlink()
        for name in made:
            (tmp_path / f"{int(name.split('.')[0]):020d}.{name.split('.', 1)[1]}").write_bytes(b"")
        return [f"{int(each.log.name[:20])}{each.log.name[20:]}" for each in list_segments(tmp_path)]

    assert names("0.log", "5.log", "0.log.cleaned") == ["0.log", "5.log"]
    assert names("0.log", "5.log", "0.log.swap", "0.index.cleaned") == ["0.log", "5.log"]
    assert names("0.log", "5.log", "0.log.swap") == ["0.log.swap", "5.log"]
    assert names("0.log.swap", "5.log", "3.log.deleted") == ["0.log.swap", "5.log"]
    assert names("0.log", "5.log", "5.log.swap", "9.log.cleaned") == ["0.log", "5.log.swap"]


class TestASegmentThatIsMissingInTheMiddle:
    def made(self, root: Path) -> Partition:
        partition = Partition(root)
        bases = [partition.segment(steady(4)) for _ in range(3)]
        partition.drop_local(bases[1])
        return partition

    def test_is_a_loss(self, tmp_path: Path) -> None:
        self.made(tmp_path)
        with pytest.raises(DataLossError, match="no segment has the offsets from 20 to 39"):
            Query(tmp_path, "orders")
        query = Query(tmp_path, "orders", failOnDataLoss="false")
        assert [offset for offset, _ in query.rows()] == [*range(20), *range(40, 60)]

    def test_is_one_too_when_it_goes_missing_after_the_planning(self, tmp_path: Path) -> None:
        partition = Partition(tmp_path)
        bases = [partition.segment(steady(4)) for _ in range(3)]
        query = Query(tmp_path, "orders")
        partition.drop_local(bases[1])
        with pytest.raises(DataLossError, match=r"is gone .* lacks the offsets from 20 to 39"):
            query.rows()

    def test_is_none_where_the_cleaner_has_been(self, tmp_path: Path) -> None:
        self.made(tmp_path)
        (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 40\n")
        assert len(Query(tmp_path, "orders").rows()) == 40

    def test_is_a_loss_where_the_cleaner_has_been_elsewhere(self, tmp_path: Path) -> None:
        self.made(tmp_path)
        (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\norders 1 40\n")
        with pytest.raises(DataLossError, match="no segment has the offsets from 20 to 39"):
            Query(tmp_path, "orders")

    @pytest.mark.parametrize("beside", ["00000000000000000040.log.cleaned", "00000000000000000020.log.deleted"])
    def test_is_none_while_the_cleaner_is_at_it(self, tmp_path: Path, beside: str) -> None:
        partition = self.made(tmp_path)
        (partition.directory / beside).write_bytes(b"")
        assert len(Query(tmp_path, "orders").rows()) == 40

    @pytest.mark.parametrize("gap", [{2}, {4}])
    def test_is_none_between_segments_that_lack_records(self, tmp_path: Path, gap: set[int]) -> None:
        partition = Partition(tmp_path)
        partition.segment([Batch([T0] * 5, holes=frozenset(gap))])
        lost = partition.segment(steady(2))
        partition.segment(steady(1))
        partition.drop_local(lost)
        assert len(Query(tmp_path, "orders").rows()) == 9
