"""`stratalog tier ls|stat|audit|repair`: what they print, what they change, what they refuse, and their exit codes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.remote.test_audit_data_dir import write_metadata
from tests.remote.world import World
from tests.support.s3_server import S3Server, require_s3_server

from stratalog.cli.main import run
from stratalog.engine.dirs.data_dir import DataDir
from stratalog.log.format.checkpoints import LOG_START_OFFSETS, OffsetCheckpoint
from stratalog.remote.metadata.serde import decode
from stratalog.remote.ownership.broker_ownership import BrokerOwnership, Claimant
from stratalog.remote.ownership.bucket_owner import take_over
from stratalog.remote.ownership.owner_file import OwnershipFile
from stratalog.remote.storage.object_names import ObjectKey, ObjectKind
from stratalog.remote.storage.object_store import ObjectStore


class Tier:
    """A bucket in a directory with a partition that was copied there, and the data directory it came from."""

    def __init__(self, root: Path) -> None:
        self.bucket = root / "bucket"
        self.data_dir = root / "data"
        self.store = ObjectStore.from_url(self.bucket.as_uri())
        self.data_dir.mkdir()
        with World(self.data_dir, store=self.store) as world:
            world.append(100)
            world.tier()
            world.drop_local()
            events = [[decode(value) for value in values] for values in world.metadata_log.values]
        for number, values in enumerate(events):
            write_metadata(self.data_dir, values, number)
        OffsetCheckpoint(self.data_dir / LOG_START_OFFSETS).write({("t", 0): 0})
        shutil.rmtree(self.data_dir / "cache", ignore_errors=True)

    def keys(self, kind: ObjectKind) -> list[str]:
        found = [ObjectKey.parse(info.key) for info in self.store.list()]
        return sorted(str(key) for key in found if key is not None and key.kind is kind)

    def spoil(self) -> None:
        """An index that is lost, a manifest that is lost, and an orphan that the metadata does not mention."""
        manifests = self.keys(ObjectKind.MANIFEST)
        self.store.delete([self.keys(ObjectKind.OFFSET_INDEX)[0], manifests[1]])
        self.store.put(f"{manifests[0][:-50]}.log", b"")
        self.store.put("t-dfcT2RzVTaa2kKZb1VMYtg/0/00000000000000009999-hB5yJqzOSDmxmNHsV7oUaw.log", b"x" * 77)

    def content(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(self.bucket.rglob("*")) if path.is_file()}

    def run(self, *args: str) -> int:
        command, *rest = args
        return run(["tier", command, str(self.bucket), *rest])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tier")
    Tier(root)
    return root


@pytest.fixture
def tier(made: Path, tmp_path: Path) -> Tier:
    """A copy of its own."""
    found = Tier.__new__(Tier)
    shutil.copytree(made, tmp_path / "t")
    found.bucket, found.data_dir = tmp_path / "t" / "bucket", tmp_path / "t" / "data"
    found.store = ObjectStore.from_url(found.bucket.as_uri())
    return found


def objects(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


# --- ls ---------------------------------------------------------------------------------------------------------------


def test_ls_lists_every_segment(tier: Tier, capsys: pytest.CaptureFixture[str]) -> None:
    assert tier.run("ls", "--json") == 0
    listed = objects(capsys)
    assert len(listed) == len(tier.keys(ObjectKind.MANIFEST))
    assert {one["state"] for one in listed} == {"complete"}
    assert [one["baseOffset"] for one in listed] == sorted(one["baseOffset"] for one in listed)
    for one, after in pairwise(listed):
        assert after["baseOffset"] == one["endOffset"] + 1
    first = listed[0]
    assert first["bytes"] == first["objects"]["log"]
    assert set(first["objects"]) >= {"log", "index", "timeindex", "leader-epoch-checkpoint", "manifest.json"}
    assert first["leaderEpochs"] == [[0, 0]]
    assert tier.run("ls") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(listed)
    assert lines[0].split("\t")[:2] == ["t-0", f"0-{first['endOffset']}"]


def test_ls_filters_by_topic_partition_offset_and_time(tier: Tier, capsys: pytest.CaptureFixture[str]) -> None:
    tier.run("ls", "--json")
    listed = objects(capsys)

    def bases(*args: str) -> list[int]:
        assert tier.run("ls", "--json", *args) == 0
        return [one["baseOffset"] for one in objects(capsys)]

    every = [one["baseOffset"] for one in listed]
    third = listed[2]
    assert bases("--topic", "t") == bases("--partition", "0") == every
    assert bases("--from-offset", str(third["baseOffset"])) == every[2:]
    assert bases("--to-offset", str(third["endOffset"])) == every[:3]
    inside = str(third["baseOffset"] + 1)
    assert bases("--from-offset", inside, "--to-offset", inside) == [every[2]]
    assert bases("--from-time", str(third["maxTimestamp"])) == every[2:]
    assert bases("--to-time", str(listed[1]["maxTimestamp"] - 1)) == every[:2]
    assert bases("--from-time", "2099-01-01") == []
    assert bases("--from-time", "2023-01-01T00:00:00Z") == every


def test_what_is_asked_for_by_name_and_does_not_exist_is_exit_1(tier: Tier, capsys: pytest.CaptureFixture[str]) -> None:
    tier.run("ls")
    capsys.readouterr()
    for command in ("ls", "stat", "audit", "repair"):
        assert tier.run(command, "--topic", "tt") == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.endswith("no topic tt; did you mean t?\n")
    assert tier.run("ls", "--partition", "1") == 1
    assert "no partition 1" in capsys.readouterr().err


def test_an_empty_bucket_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("ls", "stat"):
        assert run(["tier", command, str(tmp_path)]) == 0
        said = capsys.readouterr()
        assert (said.out, said.err) == ("", f"stratalog: {tmp_path}: no tiered topics found\n")


def test_the_bucket_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tier", "ls", "--remote", str(tmp_path)]) == 0
    for arguments in ([], [str(tmp_path), "--remote", str(tmp_path)]):
        assert run(["tier", "ls", *arguments]) == 2
        assert "as URL or as --remote URL" in capsys.readouterr().err


@pytest.mark.parametrize("typo", ["s3//bucket/x", "s3:/bucket/x"])
def test_what_is_nearly_a_url_is_asked_back(capsys: pytest.CaptureFixture[str], typo: str) -> None:
    assert run(["tier", "ls", typo]) == 2
    assert "did you mean s3://bucket/x?" in capsys.readouterr().err


def test_ls_sums_topics_and_partitions(tier: Tier, capsys: pytest.CaptureFixture[str]) -> None:
    for level in ("topics", "partitions"):
        assert tier.run("ls", "--level", level, "--json") == 0
        (one,) = objects(capsys)
        assert (one["topic"], one["segments"]) == ("t", len(tier.keys(ObjectKind.MANIFEST)))
        assert one["bytes"] == sum(map(len, tier.content().values()))


def test_ls_tells_states(tier: Tier, capsys: pytest.CaptureFixture[str]) -> None:
    tier.spoil()
    tier.run("ls", "--json")
    assert [one["state"] for one in objects(capsys)[:3]] == ["damaged", "incomplete", "complete"]
    tier.run("ls", "--json", "--data-dir", str(tier.data_dir))
    states = [one["state"] for one in objects(capsys)]
    assert states[:3] == ["COPY_SEGMENT_FINISHED"] * 3
    assert states[-1] == "incomplete"
    key = tier.keys(ObjectKind.MANIFEST)[1]
    tier.store.put(key.replace(ObjectKind.MANIFEST.value, ObjectKind.REPLACED.value), tier.store.get(key))
    tier.store.delete([key])
    tier.run("ls", "--json")
    assert [one["state"] for one in objects(capsys)[:3]] == ["damaged", "incomplete", "replaced"]


# --- stat -------------------------------------------------------------------------------------------------------------


def test_stat_sums_bytes_by_kind(tier: Tier, capsys: pytest.CaptureFixture[str]) -> None:
    for args in ([], ["--partitions"]):
        assert tier.run("stat", "--json", *args) == 0
        (one,) = objects(capsys)
        content = tier.content()
        assert one["bytes"] == sum(map(len, content.values()))
        logs = sum(len(data) for name, data in content.items() if name.endswith(".log"))
        assert one["bytesByKind"]["log"] == logs
        assert (one["partition"], one["codecs"]) == (0 if args else None, ["none"])
        assert one["oldestTimestamp"] < one["newestTimestamp"]
        assert one["segments"] == len(tier.keys(ObjectKind.MANIFEST))
    assert tier.run("stat") == 0
    assert f"bytes={one['bytes']}" in capsys.readouterr().out


# --- audit ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deep", [[], ["--deep"]], ids=["listing", "deep"])
@pytest.mark.parametrize("with_dir", [False, True], ids=["bucket", "data dir"])
def test_audit_of_a_sound_bucket(
    tier: Tier, deep: list[str], with_dir: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["--data-dir", str(tier.data_dir)] if with_dir else []
    assert tier.run("audit", "--json", "--grace", "0", *deep, *args) == 0
    (summary,) = objects(capsys)
    assert (summary["type"], summary["errors"], summary["warnings"]) == ("summary", 0, 0)
    assert (summary["readBytes"] > 0) == bool(deep)


def test_audit_names_what_is_wrong_and_changes_nothing(tier: Tier, capsys: pytest.CaptureFixture[str]) -> None:
    tier.spoil()
    before = tier.content()
    assert tier.run("audit", "--json", "--data-dir", str(tier.data_dir), "--grace", "0") == 1
    *findings, summary = objects(capsys)
    kinds = {(one["kind"], one["severity"]) for one in findings}
    assert {("missing-object", "error"), ("missing-manifest", "error"), ("orphan", "warning")} <= kinds
    (orphan,) = [one for one in findings if one["kind"] == "orphan"]
    assert (orphan["bytes"], orphan["topic"], orphan["partition"]) == (77, "t", 0)
    assert orphan["repair"] == "delete 1 object"
    assert summary["repairable"] == 3
    assert tier.content() == before
    assert tier.run("audit", "--data-dir", str(tier.data_dir), "--grace", "0") == 1
    out = capsys.readouterr().out
    assert "missing-manifest" in out
    assert "3 of them can be repaired (tier repair)" in out


def test_damage_of_records_is_found_by_reading_them(tier: Tier, capsys: pytest.CaptureFixture[str]) -> None:
    key = tier.keys(ObjectKind.LOG)[1]
    data = bytearray(tier.store.get(key))
    data[-1] ^= 1
    tier.store.put(key, bytes(data))
    assert tier.run("audit", "--json") == 0
    capsys.readouterr()
    assert tier.run("audit", "--json", "--deep") == 1
    *findings, _ = objects(capsys)
    assert {one["kind"] for one in findings} == {"damaged-object", "damaged-batch"}
    assert {one["key"] for one in findings} == {key}


def test_records_that_neither_tier_has_are_reported(tier: Tier, capsys: pytest.CaptureFixture[str]) -> None:
    key = tier.keys(ObjectKind.LOG)[2]
    for kind in ObjectKind:
        tier.store.delete([key.removesuffix("log") + kind.value])
    assert tier.run("audit", "--json", "--data-dir", str(tier.data_dir)) == 1
    *findings, _ = objects(capsys)
    assert {one["kind"] for one in findings} == {"missing-segment", "lost-offsets"}
    assert len({tuple(one["offsets"]) for one in findings}) == 1


# --- repair -----------------------------------------------------------------------------------------------------------


def test_repair_is_a_dry_run_by_default(tier: Tier, capsys: pytest.CaptureFixture[str]) -> None:
    tier.spoil()
    before = tier.content()
    assert tier.run("repair", "--data-dir", str(tier.data_dir), "--grace", "0") == 1
    found = capsys.readouterr()
    assert "Repair would" in found.out
    assert "nothing was changed" in found.err
    assert tier.content() == before


def test_repair_mends_and_a_second_one_has_nothing_to_do(tier: Tier, capsys: pytest.CaptureFixture[str]) -> None:
    sound = tier.content()
    tier.spoil()
    args = ("repair", "--json", "--data-dir", str(tier.data_dir), "--grace", "0", "--apply")
    assert tier.run(*args) == 0
    reported = objects(capsys)
    assert [one["error"] for one in reported if one["type"] == "repaired"] == [None] * 3
    assert [one["type"] for one in reported].count("summary") == 2
    assert (reported[-1]["errors"], reported[-1]["warnings"], reported[-1]["repairable"]) == (0, 0, 0)
    mended = tier.content()
    logs = {name: data for name, data in sound.items() if name.endswith(".log")}
    assert {name: data for name, data in mended.items() if name in logs} == logs
    assert sound.keys() <= mended.keys()
    assert tier.run(*args) == 0
    assert [one["type"] for one in objects(capsys) if one["type"] != "finding"] == ["plan", "summary"][1:]
    assert tier.content() == mended


def test_repair_touches_nothing_that_is_young(tier: Tier, capsys: pytest.CaptureFixture[str]) -> None:
    tier.spoil()
    before = tier.content()
    assert tier.run("repair", "--data-dir", str(tier.data_dir), "--apply") == 1
    assert "once older than the grace period" in capsys.readouterr().out
    assert tier.content() == before


def test_old_leftovers_go_by_the_time_of_the_store(tier: Tier) -> None:
    tier.spoil()
    for path in tier.bucket.rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    assert tier.run("repair", "--data-dir", str(tier.data_dir), "--apply") == 0


def test_repair_keeps_away_from_a_directory_that_is_served(tier: Tier, capsys: pytest.CaptureFixture[str]) -> None:
    tier.spoil()
    before = tier.content()
    served = DataDir.open(tier.data_dir, cluster_id="c", node_id=1)
    try:
        args = ("repair", "--data-dir", str(tier.data_dir), "--grace", "0")
        assert tier.run(*args, "--apply") == 2
        assert "in use by a broker" in capsys.readouterr().err
        assert tier.run(*args) == 1
        assert tier.run("audit", "--data-dir", str(tier.data_dir), "--grace", "0") == 1
    finally:
        served.close(clean=True)
    assert tier.content() == before


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["ls", "stat", "audit", "repair"])
@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file:///no/such/directory", "no such directory"),
        ("/no/such/directory", "no such directory"),
        ("ftp://host/x", "is not an object store URL"),
    ],
)
def test_a_bucket_that_is_not_there_is_one_line(
    command: str, url: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tier", command, url]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["audit", "--grace", "soon"], "--grace soon"),
        (["ls", "--from-time", "yesterday"], "--from-time yesterday"),
        (["ls", "--store-option", "endpoint"], "KEY=VALUE"),
        (["audit", "--data-dir", "/no/such"], "/no/such"),
        (["stat", "--store-option", "endpoint=x"], "takes no option endpoint"),
    ],
)
def test_wrong_usage_is_one_line(args: list[str], message: str, tier: Tier, capsys: pytest.CaptureFixture[str]) -> None:
    assert tier.run(*args) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_an_empty_bucket_is_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("ls", "stat", "audit", "repair"):
        assert run(["tier", command, str(tmp_path)]) == 0
    assert "sound" in capsys.readouterr().out


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory_is_refused_before_anything_is_done(
    tier: Tier, capsys: pytest.CaptureFixture[str]
) -> None:
    tier.spoil()
    before = tier.content()
    tier.bucket.chmod(0o555)
    assert tier.run("repair", "--data-dir", str(tier.data_dir), "--grace", "0", "--apply") == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert tier.content() == before


def test_a_bucket_that_takes_no_writes_is_refused_before_anything_is_done(
    tier: Tier, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from stratalog.errors import RemoteStorageError

    tier.spoil()
    before = tier.content()

    def denied(self: ObjectStore, key: str, data: bytes) -> None:
        raise RemoteStorageError(f"put {self.url}/{key}: access is denied")

    monkeypatch.setattr("stratalog.remote.storage.object_store.ObstoreObjectStore.put", denied)
    assert tier.run("repair", "--data-dir", str(tier.data_dir), "--grace", "0", "--apply") == 2
    error = capsys.readouterr().err
    assert "access is denied" in error
    assert error.count("\n") == 1
    assert tier.content() == before


# --- a real S3 server -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    require_s3_server()
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


def options(server: S3Server, **changes: str) -> list[str]:
    values = {**server.options, "max_retries": "0", **changes}
    return [part for name, value in values.items() for part in ("--store-option", f"{name}={value}")]


def test_repair_of_a_bucket_in_s3(tier: Tier, s3: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    tier.spoil()
    remote = ObjectStore.from_url(s3.url("tier/prefix"), s3.options)
    for info in tier.store.list():
        remote.put(info.key, bytes(tier.store.get(info.key)))
    url, given = s3.url("tier/prefix"), options(s3)
    assert (
        run(
            [
                "tier",
                "audit",
                url,
                *given,
                "--data-dir",
                str(tier.data_dir),
                "--deep",
                "--json",
                "--grace",
                "0",
            ]
        )
        == 1
    )
    assert objects(capsys)[-1]["repairable"] == 3
    repair = ["tier", "repair", url, *given, "--data-dir", str(tier.data_dir), "--apply", "--json"]
    assert run(repair) == 1, "nothing is old enough"
    capsys.readouterr()
    assert run([*repair, "--grace", "0"]) == 0
    assert objects(capsys)[-1]["repairable"] == 0
    assert run(["tier", "ls", url, *given, "--level", "topics", "--json"]) == 0
    (topic,) = objects(capsys)
    assert topic["segments"] == len(tier.keys(ObjectKind.LOG)) - 1


@pytest.mark.parametrize("command", ["ls", "stat", "audit", "repair"])
@pytest.mark.parametrize(
    ("bucket", "changes", "message"),
    [
        ("tier", {"secret_access_key": "wrong"}, "check the credentials"),
        ("tier", {"access_key_id": "nobody"}, "check the credentials"),
        ("no-such-bucket", {}, "does not exist"),
        ("tier", {"endpoint": "http://127.0.0.1:9"}, "cannot be reached"),
    ],
    ids=["wrong secret", "unknown key", "no bucket", "unreachable"],
)
def test_what_is_wrong_with_the_store_is_one_line(
    command: str, bucket: str, changes: dict[str, str], message: str, s3: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    ObjectStore.from_url(s3.url("tier"), s3.options).put("there", b"x")
    assert run(["tier", command, s3.url(bucket), *options(s3, **changes)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_environment_names_the_store(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ObjectStore.from_url(s3.url("tier"), s3.options).put("there", b"x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.options["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.options["secret_access_key"])
    assert run(["tier", "audit", s3.url("tier/prefix")]) in (0, 1)
    assert capsys.readouterr().err == ""


def test_repair_is_for_who_owns_the_bucket_alone(tier: Tier, capsys: pytest.CaptureFixture[str]) -> None:
    tier.spoil()
    take_over(tier.store, "production")
    before = {path: data for path, data in tier.content().items() if "_owner" not in path}
    meta = tier.data_dir / "meta.properties"
    meta.write_text("version=1\ncluster.id=copy\nnode.id=1\n")
    given = ("--data-dir", str(tier.data_dir), "--grace", "0", "--apply")
    for arguments, said in (
        (("--grace", "0", "--apply"), "stop that cluster's broker and give its --data-dir"),
        (given, "belongs to cluster copy"),
    ):
        assert tier.run("repair", *arguments) == 2
        err = capsys.readouterr().err
        assert "tier repair --apply is refused: the bucket belongs to cluster production" in err
        assert said in err
        assert {path: data for path, data in tier.content().items() if "_owner" not in path} == before
    meta.write_text("version=1\ncluster.id=production\nnode.id=1\n")
    file = OwnershipFile(tier.data_dir)
    claimant = Claimant("production", 1, file, lambda _: True)
    BrokerOwnership(tier.store, claimant).ensure()
    current = file.incarnations(tier.store.url)
    file.set_incarnations(tier.store.url, ("of before",))
    assert tier.run("repair", *given) == 2
    assert "this is an old copy" in capsys.readouterr().err
    assert {path: data for path, data in tier.content().items() if "_owner" not in path} == before
    file.set_incarnations(tier.store.url, current)
    tier.run("repair", *given)
    assert "deleted" in capsys.readouterr().out
    assert {path for path in tier.content() if "_owner" not in path} != set(before)
