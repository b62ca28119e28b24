from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.log.test_publication import JOB, DyingFileSystem, offsets, staged

from stratalog.engine.dirs import data_dir
from stratalog.engine.dirs.data_dir import DataDir, is_served, stored_cluster_id
from stratalog.errors import DataDirError
from stratalog.log.opening import open_log
from stratalog.log.segment.directory_transaction import publish, staging_directory
from stratalog.records.record import Record
from stratalog.testing.lossy_filesystem import LossyFileSystem


def open_dir(path: Path, **other: object) -> DataDir:
    return DataDir.open(path, **{"cluster_id": "c1", "node_id": 1, **other})  # type: ignore[arg-type]


def test_a_new_directory_counts_as_cleanly_left_and_gets_its_identity(tmp_path: Path) -> None:
    data_dir = open_dir(tmp_path / "d")
    assert data_dir.was_clean
    lines = (tmp_path / "d" / "meta.properties").read_text().splitlines()
    assert [line.partition("=")[0] for line in lines] == ["cluster.id", "directory.id", "node.id", "version"]
    assert stored_cluster_id(tmp_path / "d") == "c1"
    data_dir.close(clean=True)


def test_the_marker_of_a_clean_stop_is_gone_while_the_directory_is_served(tmp_path: Path) -> None:
    first = open_dir(tmp_path)
    (tmp_path / "t-0").mkdir()
    first.close(clean=True)
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    second = open_dir(tmp_path)
    assert second.was_clean
    assert second.directory_id == first.directory_id
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    second.close(clean=False)
    third = open_dir(tmp_path)
    assert not third.was_clean
    third.close(clean=True)


def test_two_brokers_cannot_serve_one_directory(tmp_path: Path) -> None:
    held = open_dir(tmp_path)
    with pytest.raises(DataDirError, match="in use by another broker"):
        open_dir(tmp_path)
    program = (
        "import sys; from pathlib import Path; from stratalog.engine.dirs.data_dir import DataDir\n"
        "DataDir.open(Path(sys.argv[1]), cluster_id='c1', node_id=1)"
    )
    other = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert "in use by another broker" in other.stderr
    held.close(clean=True)
    open_dir(tmp_path).close(clean=True)


@pytest.mark.parametrize(
    ("other", "message"),
    [({"cluster_id": "c2"}, "cluster.id is c1, expected c2"), ({"node_id": 2}, "node.id is 1, expected 2")],
)
def test_a_directory_of_another_installation_is_refused(tmp_path: Path, other: dict[str, object], message: str) -> None:
    open_dir(tmp_path).close(clean=True)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(DataDirError, match=message):
        open_dir(tmp_path, **other)
    assert sorted(os.listdir(tmp_path)) == before


def test_another_format_version_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("cluster.id=c1\nnode.id=1\nversion=9\n")
    with pytest.raises(DataDirError, match="format version is 9, expected 1"):
        open_dir(tmp_path)


def test_a_path_that_cannot_be_a_directory_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataDirError, match=r"cannot be used: .*give a directory that this user can write"):
        open_dir(tmp_path / "file" / "data")


def test_a_directory_shows_whether_it_is_served(tmp_path: Path) -> None:
    assert not is_served(tmp_path)
    held = open_dir(tmp_path)
    asked = (
        "from pathlib import Path; from stratalog.engine.dirs.data_dir import is_served; "
        f"print(is_served(Path({str(tmp_path)!r})))"
    )
    assert is_served(tmp_path)
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True).stdout == "True\n"
    held.close(clean=True)
    assert not is_served(tmp_path)


def test_the_marker_is_gone_for_good_before_anything_is_written(tmp_path: Path) -> None:
    """A marker that came back after a power failure would hide it."""
    opened = DataDir.open(tmp_path, cluster_id="c", node_id=1)
    opened.close(clean=True)
    fs = LossyFileSystem(tmp_path)
    DataDir.open(tmp_path, cluster_id="c", node_id=1, fs=fs)._lock.close()
    data_dir._served_here.clear()
    fs.crash()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("renames", range(0, 26, 3))
def test_a_start_finishes_a_publication_that_was_killed_or_shows_nothing_of_it(tmp_path: Path, renames: int) -> None:
    with open_log(tmp_path / "orders-0") as log:
        log.append([Record(0, 5, b"k", b"v")] * 7)
    job = [staged(tmp_path, 0, 300), staged(tmp_path, 1, 30)]
    killed = False
    try:
        publish(tmp_path, JOB, "job", job, fs=DyingFileSystem(renames))
    except KeyboardInterrupt:
        killed = True
    committed = not killed or (tmp_path / "stratalog-publication-job.json").exists()
    open_dir(tmp_path).close(clean=False)
    assert offsets(tmp_path, 0) == list(range(307 if committed else 7))
    assert offsets(tmp_path, 1) == list(range(30 if committed else 0))
    assert not (tmp_path / "stratalog-publication-job.json").exists()


def test_a_start_names_segments_that_were_published_and_are_gone(tmp_path: Path) -> None:
    job = [staged(tmp_path, 0, 300)]
    for renames in range(26):
        with suppress(KeyboardInterrupt):
            publish(tmp_path, JOB, "job", job, fs=DyingFileSystem(renames))
        if (tmp_path / "stratalog-publication-job.json").exists():
            break
        shutil.rmtree(staging_directory(tmp_path, JOB))
        job = [staged(tmp_path, 0, 300)]
    shutil.rmtree(staging_directory(tmp_path, JOB))
    with pytest.raises(DataDirError, match=r"is missing: stratalog-publication-job\.json renames"):
        open_dir(tmp_path)
