"""`stratalog fsck`: what it prints, exit codes, questions, and that no one else has the directory."""

from __future__ import annotations

import fcntl
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.golden.kafka_log_dirs import make as golden

import stratalog
from stratalog.cli.main import run
from stratalog.jobs import SILENT, Progress
from stratalog.log.format.file_names import log_file
from stratalog.records import Record, build_batch

Captured = pytest.CaptureFixture[str]
GOLDEN = Path(golden.__file__).parent / "stopped" / "golden-0"


def fsck(capture: Captured, *arguments: object) -> tuple[int, list[str], list[str]]:
    status = run(["fsck", *map(str, arguments)])
    out, err = capture.readouterr()
    return status, out.splitlines(), err.splitlines()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory with one partition of two batches, whose last one is torn."""
    partition = tmp_path / "data" / "t-0"
    partition.mkdir(parents=True)
    parts = [build_batch([Record(n, 5, None, b"v")], base_offset=n, partition_leader_epoch=0) for n in range(3)]
    (partition / log_file(0)).write_bytes(b"".join(parts)[:-3])
    (partition / "00000000000000000000.index").write_bytes(b"")
    (partition / "00000000000000000000.timeindex").write_bytes(b"")
    (partition / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    return partition.parent


def test_a_clean_directory_is_one_line_and_exit_code_0(capsys: Captured) -> None:
    status, out, err = fsck(capsys, GOLDEN)
    assert (status, err, len(out)) == (0, [], 1)
    assert out[0].startswith("1 partition, 2 segments, 21 batches, 53,529 bytes of log in ")
    assert out[0].endswith(": clean")


def test_findings_are_a_table_with_what_where_and_what_to_do(capsys: Captured, data: Path) -> None:
    status, out, err = fsck(capsys, data)
    assert (status, err, len(out)) == (1, [], 3)
    assert out[0].split() == [
        "SEVERITY",
        "PARTITION",
        "FILE",
        "POSITION",
        "FOUND",
        "EXPECTED",
        "REPAIR",
        "BYTES",
    ]
    for part in ("error", "t-0", log_file(0), "138", "torn-tail: ", "at offset 2", "cut at 138", " 66"):
        assert part in out[1]
    assert out[2].endswith("1 error, 0 warnings, 0 notes; 1 of them can be repaired (--repair)")


def test_json_is_one_object_a_line(capsys: Captured, data: Path) -> None:
    status, out, err = fsck(capsys, data, "--json")
    assert (status, err) == (1, [])
    finding, summary = map(json.loads, out)
    assert finding == {
        "type": "finding",
        "severity": "error",
        "kind": "torn-tail",
        "partition": "t-0",
        "file": str(data / "t-0" / log_file(0)),
        "position": 138,
        "bytes": 66,
        "found": "after the last sound batch: a batch of 69 bytes, but only 66 exist",
        "expected": "the end of the log, at offset 2",
        "repair": f"cut at 138, keep the rest as {log_file(0)}.138.cut",
    }
    assert {key: summary[key] for key in ("type", "partitions", "segments", "batches", "bytes", "errors")} == {
        "type": "summary",
        "partitions": 1,
        "segments": 1,
        "batches": 2,
        "bytes": 204,
        "errors": 1,
    }


def test_repair_says_first_what_it_will_do_and_changes_nothing_unasked(
    capsys: Captured, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = data / "t-0" / log_file(0)
    before = log.read_bytes()
    status, out, err = fsck(capsys, data, "--repair")
    assert status == 1
    assert f"  {log}: cut at 138, keep the rest as {log.name}.138.cut" in out
    assert err == ["stratalog: nothing was changed: input is not a terminal, so repair needs --yes"]
    assert log.read_bytes() == before
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    status, _, err = fsck(capsys, data, "--repair")
    assert (status, err) == (1, ["stratalog: nothing was changed"])
    assert log.read_bytes() == before


def test_repair_with_yes_repairs_and_checks_again(capsys: Captured, data: Path) -> None:
    log = data / "t-0" / log_file(0)
    before = log.read_bytes()
    status, out, err = fsck(capsys, data, "--repair", "--yes")
    assert (status, err) == (0, [])
    assert any(line.startswith(f"repaired {log}") for line in out)
    assert "0 errors, 0 warnings, 1 note" in out[-1]
    assert log.read_bytes() == before[:138]
    assert (data / "t-0" / f"{log.name}.138.cut").read_bytes() == before[138:]
    assert fsck(capsys, data)[0] == 0


def test_repair_with_json_tells_plan_and_outcome(capsys: Captured, data: Path) -> None:
    status, out, _ = fsck(capsys, data, "--repair", "--yes", "--json")
    assert status == 0
    lines = [json.loads(line) for line in out]
    assert [line["type"] for line in lines] == [
        "finding",
        "summary",
        "plan",
        "repaired",
        "finding",
        "summary",
    ]
    assert lines[3]["error"] is None


def test_what_cannot_be_repaired_is_said(capsys: Captured, data: Path) -> None:
    (data / "t-0" / log_file(0)).write_bytes(build_batch([Record(0, 5, None, b"v")], partition_leader_epoch=0))
    (data / "notes.txt").write_text("?")
    status, out, _ = fsck(capsys, data, "--repair", "--yes")
    assert status == 1
    assert out[-1] == "None of the findings can be repaired."


@pytest.mark.parametrize("repair", [(), ("--repair", "--yes")])
def test_a_directory_that_another_process_serves_is_refused(
    capsys: Captured, data: Path, repair: tuple[str, ...]
) -> None:
    program = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True);"
        " sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(data / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        for path in (data, data / "t-0"):
            status, out, err = fsck(capsys, path, *repair)
            assert (status, out, len(err)) == (2, [], 1)
            assert "in use by a broker" in err[0]
    finally:
        holder.communicate()


def test_a_directory_that_our_broker_serves_is_refused(capsys: Captured, tmp_path: Path) -> None:
    with stratalog.Broker(data_dir=tmp_path / "served", listen="127.0.0.1:0"):
        status, out, err = fsck(capsys, tmp_path / "served")
        assert (status, out, len(err)) == (2, [], 1)
    status, out, err = fsck(capsys, tmp_path / "served")
    assert (status, err) == (0, [])


def test_the_directory_is_locked_concurrently_and_free_afterwards(
    capsys: Captured, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []
    program = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"

    def try_to_lock() -> Progress:
        done = subprocess.run([sys.executable, "-c", program, str(data / ".lock")], capture_output=True, check=False)
        tries.append(done.returncode)
        return SILENT

    (data / ".lock").write_bytes(b"")
    monkeypatch.setattr("stratalog.cli.fsck.run.terminal_progress", try_to_lock)
    assert fsck(capsys, data)[0] == 1
    assert tries == [1]
    with (data / ".lock").open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_check_makes_no_file(capsys: Captured, data: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    assert fsck(capsys, data)[0] == 1
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before


@pytest.mark.parametrize("name", ["none", "file"])
def test_what_is_no_directory_is_one_line_and_exit_code_2(capsys: Captured, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    status, out, err = fsck(capsys, tmp_path / name)
    assert (status, out, len(err)) == (2, [], 1)
    assert str(tmp_path / name) in err[0]


def test_yes_without_repair_is_wrong_usage(capsys: Captured, data: Path) -> None:
    assert fsck(capsys, data, "--yes")[0] == 2


def test_a_terminal_gets_a_table_of_its_width_and_a_bar_on_stderr(data: Path) -> None:
    import os
    import pty

    for columns in (100, 200):
        parent, child = pty.openpty()
        done = subprocess.Popen(
            [sys.executable, "-m", "stratalog", "fsck", str(data)],
            stdout=child,
            stderr=child,
            stdin=child,
            env={**os.environ, "COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1"},
        )
        os.close(child)
        text = b""
        try:
            while piece := os.read(parent, 65_536):
                text += piece
        except OSError:
            pass  # how a terminal ends on Linux
        os.close(parent)
        assert done.wait() == 1
        lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "\n", text.decode()).splitlines()
        assert max(map(len, lines)) <= columns
        assert any("torn-tail" in line for line in lines)


@pytest.mark.parametrize("names", [(), ("passwd", "cron.d-1/job")])
def test_a_directory_of_something_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: tuple[str, ...]
) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert run(["fsck", str(tmp_path)]) == 2
    assert "is not a log directory" in capsys.readouterr().err
