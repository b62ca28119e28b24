"""Two brokers on one bucket, and a copy restored from it: what one owns the other neither adds to nor deletes."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.support.tiered_broker import (
    SEGMENTS,
    delete_topic,
    eventually,
    fill,
    partition_of,
    tiered,
    tiering_broker,
    values,
)

from stratalog.broker.server.server import Broker
from stratalog.cli.main import run
from stratalog.remote.ownership.bucket_owner import read_owner
from stratalog.remote.storage.object_store import ObjectStore


@pytest.fixture
def bucket(tmp_path: Path) -> ObjectStore:
    return ObjectStore.from_url((tmp_path / "bucket").as_uri())


def broker_on(bucket: ObjectStore, data_dir: Path) -> Broker:
    return tiering_broker(data_dir, bucket.url)


def segments_of(bucket: ObjectStore) -> list[str]:
    return sorted(info.key for info in bucket.list() if not info.key.startswith("_owner"))


def restored(bucket: ObjectStore, data_dir: Path, *arguments: str) -> None:
    assert run(["tier", "restore", bucket.url, "--data-dir", str(data_dir), *arguments]) == 0


def test_a_restored_copy_that_deletes_its_topic_deletes_nothing_of_production(
    bucket: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with broker_on(bucket, tmp_path / "production") as production:
        partition = tiered(production)
        eventually(lambda: partition.log.highest_offset_in_remote_storage == SEGMENTS - 1)
        partition.log.delete_old_segments()
        before = segments_of(bucket)
        restored(bucket, tmp_path / "copy")
        assert "this directory only reads it" in capsys.readouterr().out
        with broker_on(bucket, tmp_path / "copy") as copy:
            of_copy = partition_of(copy)
            assert values(of_copy) == [b"0", b"1", b"2"]
            fill(of_copy, 2)
            remote = copy.services.logs.remote
            assert remote is not None
            remote.run_once(of_copy.topic_id_partition)
            assert values(of_copy) == [b"0", b"1", b"2", b"3", b"4"]
            gone = of_copy.topic_id_partition
            delete_topic(copy)
            eventually(lambda: not remote.is_deleting(gone))
            assert segments_of(bucket) == before
        assert values(partition) == [b"0", b"1", b"2"]
        fill(partition, 2)
        eventually(lambda: partition.log.highest_offset_in_remote_storage == SEGMENTS + 1)


def test_the_second_cluster_on_a_bucket_serves_and_copies_nothing_and_says_why(
    bucket: ObjectStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once in its log; and `tier status` says it when it does not run any more, until an operator decides."""
    status = ["tier", "status", "--data-dir", str(tmp_path / "two")]
    with broker_on(bucket, tmp_path / "one") as one:
        partition = tiered(one, "mine")
        eventually(lambda: partition.log.highest_offset_in_remote_storage == SEGMENTS - 1)
        before = segments_of(bucket)
        with caplog.at_level(logging.ERROR), broker_on(bucket, tmp_path / "two") as two:
            other = tiered(two, "yours")
            remote = two.services.logs.remote
            assert remote is not None
            eventually(lambda: any(task == "copy" for _, task in remote.health.failures))
            assert values(other) == [b"0", b"1", b"2"]
        why = f"{bucket.url} belongs to cluster {one.services.cluster_id}"
        (said,) = [each.getMessage() for each in caplog.records if "belongs to cluster" in each.getMessage()]
        assert said.startswith(why)
        assert segments_of(bucket) == before
        capsys.readouterr()
        assert run(status) == 1
        reported = capsys.readouterr().out
        assert reported.startswith("yours-0\tfailing\t")
        assert reported.count(why) == 1
    assert run(["tier", "owner", bucket.url, "--take-over", "--data-dir", str(tmp_path / "two")]) == 0
    assert run(status) == 0
    assert "yours-0\twaiting\t" in capsys.readouterr().out


def test_a_restore_that_takes_the_bucket_over_shuts_production_out(bucket: ObjectStore, tmp_path: Path) -> None:
    with broker_on(bucket, tmp_path / "production") as production:
        partition = tiered(production)
        eventually(lambda: partition.log.highest_offset_in_remote_storage == SEGMENTS - 1)
        partition.log.delete_old_segments()
        restored(bucket, tmp_path / "copy", "--take-over")
        with broker_on(bucket, tmp_path / "copy") as copy:
            of_copy = partition_of(copy)
            fill(of_copy, 2)
            eventually(lambda: of_copy.log.highest_offset_in_remote_storage == SEGMENTS + 1)
            owner = read_owner(bucket)
            assert owner is not None
            assert owner.cluster_id == copy.services.cluster_id
            before = segments_of(bucket)
            fill(partition, 2)
            remote = production.services.logs.remote
            assert remote is not None
            eventually(lambda: (partition.topic_id_partition, "copy") in remote.health.failures)
            gone = partition.topic_id_partition
            delete_topic(production)
            eventually(lambda: (gone, "deletion") in remote.health.failures)
            assert segments_of(bucket) == before
            assert values(of_copy) == [b"0", b"1", b"2", b"3", b"4"]


def test_an_operator_says_whose_a_bucket_is(
    bucket: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.put("x", b"")
    assert run(["tier", "owner", bucket.url]) == 0
    assert "this bucket has no owner" in capsys.readouterr().out
    with broker_on(bucket, tmp_path / "one") as one:
        eventually(lambda: read_owner(bucket) is not None)
    assert run(["tier", "owner", bucket.url]) == 0
    last = capsys.readouterr().out.splitlines()[-1].split("\t")
    assert (last[1], last[2], last[4]) == (one.services.cluster_id, "stopped", "none")
    restored(bucket, tmp_path / "copy")
    capsys.readouterr()
    assert run(["tier", "owner", bucket.url, "--take-over", "--data-dir", str(tmp_path / "copy"), "--json"]) == 0
    assert '"reason":"taken over"' in capsys.readouterr().out
    assert run(["tier", "owner", bucket.url, "--give-up"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split("\t")[1] == "none"
    for wrong in (["--take-over"], ["--data-dir", str(tmp_path)], ["--take-over", "--give-up"]):
        assert run(["tier", "owner", bucket.url, *wrong]) == 2
