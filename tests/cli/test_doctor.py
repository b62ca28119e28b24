"""`stratalog doctor`: what is wrong in each place, the most urgent first, and that the command it names mends it."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_fsck import data
from tests.cli.test_tier import Tier, made, tier

import stratalog
from stratalog.cli.doctor import places
from stratalog.cli.main import run

__all__ = ["data", "made", "tier"]

Captured = pytest.CaptureFixture[str]


def doctor(capture: Captured, *arguments: object) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code, and the findings."""
    capture.readouterr()
    status = run(["doctor", *map(str, arguments), "--json"])
    *findings, summary = map(json.loads, capture.readouterr().out.splitlines())
    assert summary["type"] == "summary"
    assert summary["errors"] == len([each for each in findings if each["severity"] == "error"])
    return status, findings


def test_what_is_in_order_is_one_line(
    capsys: Captured, tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "sound"
    stratalog.Broker(data_dir=directory).close()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 50, 50))
    assert run(["doctor", "--data-dir", str(directory), "--remote", str(tier.bucket)]) == 0
    assert capsys.readouterr().out == f"{directory}, {tier.bucket}: nothing is wrong\n"


def test_a_torn_tail_is_mended_by_the_command_that_is_named(capsys: Captured, data: Path) -> None:
    status, findings = doctor(capsys, "--data-dir", data)
    (torn,) = [each for each in findings if each["kind"] == "torn-tail"]
    assert (status, torn["where"], torn["severity"]) == (1, str(data), "error")
    words = shlex.split(torn["mend"])
    assert words == ["stratalog", "fsck", str(data), "--repair"]
    assert run([*words[1:], "--yes"]) == 0
    assert [each for each in doctor(capsys, "--data-dir", data)[1] if each["kind"] == "torn-tail"] == []


def test_findings_are_a_table_with_where_and_mend(
    capsys: Captured, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1000, 990, 10))
    assert run(["doctor", "--data-dir", str(data)]) == 1
    header, *rows, summary = capsys.readouterr().out.splitlines()
    assert header.split() == ["SEVERITY", "WHERE", "FOUND", "MEND"]
    assert [row.split()[0] for row in rows] == ["error", "error"]
    assert "disk-full: 10 B of 1000 B are free" in rows[0]
    assert summary == f"{data}: 2 errors"


def test_a_directory_that_a_broker_has_open_is_a_note(capsys: Captured, tmp_path: Path) -> None:
    with stratalog.Broker(data_dir=tmp_path) as broker:
        status, findings = doctor(capsys, "--data-dir", tmp_path, "-b", broker.bootstrap_servers)
    assert [each["kind"] for each in findings if each["kind"] != "disk-full"] == ["in-use"]
    assert status == (1 if len(findings) > 1 else 0)


def test_a_failed_directory_of_a_broker_is_an_error(capsys: Captured, tmp_path: Path) -> None:
    names = [tmp_path / "a", tmp_path / "b"]
    config = {"log.dirs": ",".join(map(str, names))}
    with stratalog.Broker(config=config) as broker:
        shutil.rmtree(names[1])
        broker.services.logs.dirs.fail(names[1], "Input/output error")
        status, findings = doctor(capsys, "-b", broker.bootstrap_servers)
    (failed,) = [each for each in findings if each["kind"] == "failed-directory"]
    assert status == 1
    assert failed["where"].endswith(str(names[1]))
    assert f"stratalog fsck {names[1]}" in failed["mend"]


def test_a_broker_that_does_not_answer_is_an_error(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRATALOG_BOOTSTRAP_SERVER", "127.0.0.1:1")
    status, (found,) = doctor(capsys)
    assert (status, found["kind"], found["where"]) == (1, "unreachable", "127.0.0.1:1")


def test_what_is_wrong_with_a_bucket_is_said_by_kind(capsys: Captured, tier: Tier) -> None:
    tier.spoil()
    before = tier.content()
    status, findings = doctor(capsys, "--remote", tier.bucket)
    kinds = {each["kind"]: each for each in findings}
    assert status == 1
    assert findings[0]["severity"] == "error"
    assert "missing-object" in kinds
    assert all(each["mend"].startswith("stratalog tier ") for each in findings)
    assert tier.content() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give what to look at"),
        (("--data-dir", "/nowhere"), "no such directory"),
        (("--data-dir", "/"), "is not a log directory"),
    ],
)
def test_what_cannot_be_looked_at_is_refused(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.delenv("STRATALOG_BOOTSTRAP_SERVER", raising=False)
    assert run(["doctor", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_what_cannot_be_read_is_said_and_hides_nothing_else(
    capsys: Captured, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that cannot be opened is not taken for a broker, and a partition that is refused hides no directory."""
    with monkeypatch.context() as patched:

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied", str(data / ".lock"))

        patched.setattr(places, "hold_all", refuse)
        status, findings = doctor(capsys, "--data-dir", data)
    assert status == 1
    assert [each["kind"] for each in findings if each["kind"] != "disk-full"] == ["unreadable"]


def test_a_failed_directory_is_told_of_with_the_transactions_that_it_hides(capsys: Captured, tmp_path: Path) -> None:
    names = [tmp_path / "a", tmp_path / "b"]
    config = {"log.dirs": ",".join(map(str, names))}
    with stratalog.Broker(config=config) as broker:
        broker.services.topics.create("t", 4)
        logs = broker.services.logs
        failed = logs.partitions("t")[0].log.directory.parent
        logs.dirs.fail(failed, "Input/output error")
        logs.put_offline(failed)
        status, findings = doctor(capsys, "-b", broker.bootstrap_servers)
    assert status == 1
    assert "failed-directory" in {each["kind"] for each in findings}
