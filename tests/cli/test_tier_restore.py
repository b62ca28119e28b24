"""`stratalog tier restore`: what it prints, what it makes, what it refuses, and its exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_tier import Tier

from stratalog.broker.metadata.store import MetadataStore
from stratalog.cli.main import run
from stratalog.engine.dirs.data_dir import DataDir
from stratalog.inspect.restore_marker import RESTORE_UNFINISHED
from stratalog.remote.storage.object_names import ObjectKind


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    return Tier(tmp_path)


def restore(tier: Tier, data_dir: Path, *arguments: str) -> int:
    return run(["tier", "restore", str(tier.bucket), "--data-dir", str(data_dir), *arguments])


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    tier: Tier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert restore(tier, tmp_path / "new", "--dry-run") == 0
    assert "would be restored; 0 segments left out, 0 problems" in capsys.readouterr().out
    assert not (tmp_path / "new").exists()


def test_what_was_restored_agrees_with_the_bucket_and_is_known_to_the_broker(
    tier: Tier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, before = tmp_path / "new", tier.content()
    assert restore(tier, new, "--json", "--topic-config", "segment.bytes=1048576") == 0
    reported = lines(capsys)
    assert [line["kind"] for line in reported if line["kind"] != "segment"] == ["topic", "partition", "summary"]
    assert all(line["taken"] for line in reported if line["kind"] == "segment")
    assert tier.content() == before
    store = MetadataStore.open(new)
    topic = store.topic("t")
    assert topic is not None
    assert topic.configs["segment.bytes"] == "1048576"
    assert topic.configs["local.retention.bytes"] == "1"
    assert store.topic("__remote_log_metadata") is not None
    store.close()
    assert not (new / RESTORE_UNFINISHED).exists()
    assert run(["tier", "audit", str(tier.bucket), "--data-dir", str(new)]) == 0


def test_a_configuration_that_is_not_valid_any_more_is_a_note_and_everything_is_kept(
    tier: Tier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert restore(tier, tmp_path / "new") == 0  # segments of 6,000 bytes are for tests alone
    assert "note  t: its configuration is not valid here" in capsys.readouterr().out
    store = MetadataStore.open(tmp_path / "new")
    topic = store.topic("t")
    assert topic is not None
    assert topic.configs["retention.ms"] == "-1"
    store.close()


def test_what_retention_takes_as_soon_as_it_is_served_is_said_before(
    tier: Tier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records of 2023 under the default retention of a week: serving them would delete them from the bucket."""
    valid = ["--topic-config", "segment.bytes=1048576"]
    assert restore(tier, tmp_path / "new", "--dry-run", *valid, "--topic-config", "retention.ms=604800000") == 0
    out = capsys.readouterr().out
    assert re.search(
        r"note  t: (\d+) of \1 segments \(.*\) are older than retention.ms=604800000 and are not served any more, "
        "though they stay in the bucket",
        out,
    )
    expiring = [*valid, "--topic-config", "retention.ms=604800000"]
    assert restore(tier, tmp_path / "new", "--dry-run", "--take-over", *expiring) == 0
    assert "are older than retention.ms=604800000 and are deleted from the bucket" in capsys.readouterr().out
    assert restore(tier, tmp_path / "new", "--dry-run", *valid, "--topic-config", "retention.ms=-1") == 0
    assert "are older" not in capsys.readouterr().out


def test_a_gap_is_named_and_the_exit_code_is_one(
    tier: Tier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tier.store.delete([tier.keys(ObjectKind.LOG)[1]])
    assert restore(tier, tmp_path / "new") == 1
    out = capsys.readouterr().out
    assert "left: damaged (its records are missing)" in out
    assert "not restored  t-0: offsets" in out


def test_what_cannot_be_done_is_refused_before_anything_is_made(
    tier: Tier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, said in (
        (["--topics", "t,nobody"], "has nothing of nobody"),
        (["--topic-config", "retention.ms"], "expected KEY=VALUE"),
        (["--topic-config", "retention.ms=soon", "--topic-config", "segment.bytes=1048576"], "retention.ms"),
        (["--at", "yesterday"], "--at yesterday"),
        (["--metadata-only"], "is empty"),
    ):
        assert restore(tier, tmp_path / "new", *arguments) == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "new").exists()
    used = DataDir.open(tmp_path / "used", cluster_id="c", node_id=1)
    assert restore(tier, tmp_path / "used") == 2
    assert "is in use by a broker" in capsys.readouterr().err
    used.close(clean=True)
    assert restore(tier, tmp_path / "used", "--metadata-only") == 2
    assert "its topics are unknown" in capsys.readouterr().err


def test_of_a_time_before_the_first_copy_there_is_nothing(
    tier: Tier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert restore(tier, tmp_path / "new", "--at", "2020-01-01", "--dry-run", "--json") == 0
    assert {line["verdict"] for line in lines(capsys) if line["kind"] == "segment"} == {"after_time"}


def test_a_restore_that_was_broken_off_is_run_again(tier: Tier, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    (new / RESTORE_UNFINISHED).write_bytes(b"everything\n")
    (new / "t-0").mkdir()
    (new / "t-0" / "half").write_bytes(b"made")
    assert restore(tier, new) == 0
    assert not (new / "t-0" / "half").exists()
    assert run(["fsck", str(new)]) == 0
