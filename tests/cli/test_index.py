"""`stratalog index`: what it prints, what it changes, what it refuses, and its exit codes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.log.log_model import batch_of

from stratalog.cli.main import run
from stratalog.config.topic import LogConfig
from stratalog.jobs.index.rebuild import write_offset_index
from stratalog.log.format.offset_index_format import LARGE
from stratalog.log.format.values import OffsetPosition
from stratalog.log.partition_log import PartitionLog
from stratalog.log.segment.batch_spans import spans
from stratalog.testing.clock import ManualClock
from stratalog.util.filesystem import REAL_FILESYSTEM

CONFIG = LogConfig(index_interval_bytes=100, segment_bytes=2_000)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Two partitions of a few segments each, closed cleanly."""
    for name in ("t-0", "t-1"):
        log = PartitionLog.open(tmp_path / "data" / name, CONFIG, clock=ManualClock())
        for i in range(40):
            log.append_as_leader(batch_of([b"%d" % i * 30], [i + 1]), leader_epoch=0)
        log.close()
    return tmp_path / "data"


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def indexes(data_dir: Path) -> list[Path]:
    return sorted(data_dir.rglob("*.index"))


def content(data_dir: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(data_dir.rglob("*")) if path.is_file()}


def test_inspect_tells_format_reason_and_ends(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = data_dir / "t-0" / f"{0:020d}.index"
    assert run(["index", "inspect", str(path), "--limit", "4", "--json"]) == 0
    (found,) = lines(capsys)
    assert (found["format"], found["entrySize"], found["evidence"]) == ("legacy", 8, "log")
    assert found["entries"] == path.stat().st_size // 8
    assert [entry["slot"] for entry in found["shown"]] == [0, 1, found["entries"] - 2, found["entries"] - 1]
    assert set(found["shown"][0]) == {"slot", "offset", "position"}
    assert run(["index", "inspect", str(path)]) == 0
    text = capsys.readouterr().out
    assert "offset index, legacy format, 8 bytes an entry: read with 8 bytes" in text


def test_inspect_of_a_directory_tells_one_line_for_each_index(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["index", "inspect", str(data_dir), "--json"]) == 0
    found = lines(capsys)
    assert len(found) == 2 * len(indexes(data_dir))
    assert {entry["format"] for entry in found} == {"legacy", "time"}
    assert run(["index", "inspect", str(data_dir)]) == 0
    assert "t-1/" in capsys.readouterr().out


def test_inspect_of_a_lone_index_goes_by_its_content(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{0:020d}.index"
    path.write_bytes((data_dir / "t-0" / path.name).read_bytes()[:24])
    assert run(["index", "inspect", str(path), "--json"]) == 0
    assert lines(capsys)[0]["evidence"] == "content"
    path.write_bytes(b"text!")
    assert run(["index", "inspect", str(path), "--json"]) == 1
    assert lines(capsys)[0]["corrupt"]


def test_verify_is_silent_about_what_is_right_and_exits_with_1_for_what_is_not(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["index", "verify", str(data_dir), "--json"]) == 0
    assert capsys.readouterr().out == ""
    path = indexes(data_dir)[1]
    damaged = bytearray(path.read_bytes())
    damaged[7] ^= 1
    path.write_bytes(damaged)
    assert run(["index", "verify", str(data_dir), "--json"]) == 1
    (finding,) = lines(capsys)
    assert (finding["path"], finding["kind"], finding["slot"]) == (str(path), "no batch", 0)
    assert run(["index", "verify", str(path)]) == 1
    assert "1 segments, 1 findings" in capsys.readouterr().out


def test_rebuild_mends_what_verify_finds_and_leaves_the_rest(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(data_dir)
    first, second = indexes(data_dir)[:2]
    first.write_bytes(b"no index")
    second.unlink()
    second.with_suffix(".timeindex").write_bytes(b"")
    untouched = {path: path.stat().st_ino for path in indexes(data_dir)[2:]}
    command = ["index", "rebuild", str(data_dir), "--interval", "100"]
    assert run([*command, "--only-damaged"]) == 0
    assert content(data_dir) == before
    assert {path: path.stat().st_ino for path in untouched} == untouched
    assert run(command) == 0
    assert content(data_dir) == before
    capsys.readouterr()


def test_rebuild_of_one_file_leaves_the_other_index(data_dir: Path) -> None:
    path = data_dir / "t-0" / f"{0:020d}.index"
    other = path.with_suffix(".timeindex")
    other.write_bytes(b"kept")
    assert run(["index", "rebuild", str(path), "--to", "12", "--interval", "100"]) == 0
    assert other.read_bytes() == b"kept"
    assert path.stat().st_size % 12 == 0
    assert run(["index", "inspect", str(path)]) == 0


def test_rebuild_tells_of_a_torn_log(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sorted(data_dir.rglob("*.log"))[-1]
    with path.open("ab") as log:
        log.write(b"torn")
    assert run(["index", "rebuild", str(path), "--interval", "100"]) == 1
    assert "the last 4 bytes are an incomplete batch" in capsys.readouterr().out


def test_conversion_there_and_back_changes_nothing_and_the_log_opens_either_way(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(data_dir)
    assert run(["index", "convert", "--to", "12", str(data_dir)]) == 0
    assert "offset indexes converted to the large (12 bytes an entry) format" in capsys.readouterr().out
    after = content(data_dir)
    assert {path for path in after if after[path] != before[path]} == {str(p) for p in indexes(data_dir)}
    assert run(["index", "verify", str(data_dir)]) == 0
    log = PartitionLog.open(data_dir / "t-0", CONFIG, clock=ManualClock(), clean_shutdown=True)
    assert {segment.offset_index.entry_size for segment in log.segments} == {12}
    assert log.log_end_offset == 40
    log.close()
    assert run(["index", "convert", "--to", "8", str(data_dir)]) == 0
    assert {k: v for k, v in content(data_dir).items() if k.endswith("index")} == {
        k: v for k, v in before.items() if k.endswith("index")
    }


def test_an_interrupted_conversion_goes_on_where_it_was(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, *_ = indexes(data_dir)
    assert run(["index", "convert", "--to", "12", str(first)]) == 0
    done = first.stat().st_ino
    second.with_name(second.name + ".tmp").write_bytes(b"half of it")
    capsys.readouterr()
    assert run(["index", "convert", "--to", "12", str(data_dir), "--json"]) == 0
    assert [line["path"] for line in lines(capsys)] == [str(path) for path in indexes(data_dir)[1:]]
    assert first.stat().st_ino == done
    assert not list(data_dir.rglob("*.tmp"))


def test_a_damaged_index_keeps_all_of_them_from_being_converted(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    indexes(data_dir)[-1].write_bytes(b"x" * 24)
    before = content(data_dir)
    assert run(["index", "convert", "--to", "12", str(data_dir)]) == 1
    assert "nothing was converted" in capsys.readouterr().out
    assert content(data_dir) == before


@pytest.fixture
def beyond_2_gib(data_dir: Path) -> Path:
    """A partition whose first segment has a batch behind 2 GiB, in a hole of the file, and an entry for it."""
    directory = data_dir / "t-0"
    log, index = directory / f"{0:020d}.log", directory / f"{0:020d}.index"
    with REAL_FILESYSTEM.open(log, write=True) as file:
        size = file.size()
        position, last = list(spans(file, size))[-1]
        batch = file.pread(last.size, position)
        file.write_at(batch, 2**31 + 5)
    write_offset_index(index, 0, [OffsetPosition(last.last_offset, 2**31 + 5)], LARGE)
    return directory


def test_a_position_that_does_not_fit_is_refused_before_anything_is_written(
    data_dir: Path, beyond_2_gib: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in indexes(data_dir)}
    assert run(["index", "convert", "--to", "8", str(data_dir)]) == 2
    error = capsys.readouterr().err
    assert "position 2147483653 does not fit entries of 8 bytes" in error
    assert error.count("\n") == 1
    assert run(["index", "rebuild", "--to", "8", str(beyond_2_gib)]) == 2
    assert "too large for entries of 8 bytes; nothing was written" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in indexes(data_dir)} == before


@pytest.fixture
def broker_lock(data_dir: Path) -> Iterator[None]:
    """Another process that holds the directory's lock."""
    (data_dir / ".lock").touch()
    program = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True);"
        " sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(data_dir / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield
        holder.communicate()


@pytest.mark.usefixtures("broker_lock")
@pytest.mark.parametrize("command", [["convert", "--to", "12"], ["rebuild"]], ids=["convert", "rebuild"])
def test_a_directory_that_is_served_is_not_touched_but_may_be_looked_at(
    data_dir: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(data_dir)
    for path in (data_dir, data_dir / "t-1", indexes(data_dir)[0]):
        assert run(["index", *command, str(path)]) == 2
        assert "in use by a broker" in capsys.readouterr().err
    assert content(data_dir) == before
    assert run(["index", "verify", str(data_dir)]) == 0
    assert run(["index", "inspect", str(data_dir)]) == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["verify", "missing"], "no such file or directory"),
        (["verify", "."], "expected partitions or segments in this directory"),
        (["inspect", "notes.txt"], "expected the name of an offset index, a time index or a log"),
        (["convert", "--to", "16", "."], "--to 16: an offset index entry has 8 or 12 bytes"),
        (["verify", f"{5:020d}.index"], "this log does not exist"),
    ],
)
def test_wrong_usage_is_one_line_and_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: list[str],
    message: str,
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    Path("notes.txt").write_text("no index", encoding="utf-8")
    if args[1].endswith(".index"):
        Path(args[1]).write_bytes(bytes(8))
    assert run(["index", *args]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_copy_of_a_partition_in_any_directory_will_do(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(data_dir / "t-0", tmp_path / "backup")
    assert run(["index", "verify", str(tmp_path / "backup")]) == 0
    assert " 0 findings" in capsys.readouterr().out
