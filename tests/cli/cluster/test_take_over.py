"""`stratalog cluster check`: what in directories and in a cluster stops a take-over, without a JVM."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.cli.cluster.take_over import ClusterFacts, DirectoryOwner, check_cluster, check_directories
from stratalog.cli.main import run
from stratalog.engine.dirs import format_dir
from stratalog.log.format import PartitionMetadataFile
from stratalog.log.recovery import hold

CLUSTER = "5L6g3nShT-eMCtK--X86sw"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory of node 3, stopped cleanly, with one empty partition."""
    path = tmp_path / "data"
    format_dir(path, cluster_id=CLUSTER, node_id=3)
    (path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')
    partition = path / "orders-0"
    partition.mkdir()
    (partition / f"{0:020}.log").touch()
    PartitionMetadataFile(partition / "partition.metadata").write(uuid.UUID(int=7))
    return path


def kinds(path: Path, node_id: int | None = None) -> list[tuple[str, str]]:
    return [(each.severity, each.kind) for each in check_directories([path], node_id=node_id)[1]]


def contents(path: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(each.relative_to(path)): (each.stat().st_mtime_ns, each.read_bytes())
        for each in path.rglob("*")
        if each.is_file() and each.stat().st_size < 1 << 20
    }


def set_meta(path: Path, **changes: str | None) -> None:
    file = path / "meta.properties"
    lines = dict(line.split("=", 1) for line in file.read_text().splitlines())
    lines |= {key.replace("_", "."): value for key, value in changes.items()}  # type: ignore[misc]
    file.write_text("".join(f"{key}={value}\n" for key, value in lines.items() if value is not None))


def with_sparse_segment(path: Path) -> None:
    with (path / "orders-0" / f"{0:020}.log").open("wb") as log:
        log.truncate(1 << 31)


def with_large_index(path: Path) -> None:
    (path / "orders-0" / f"{0:020}.index").write_bytes(bytes(11) + b"\x01")


def with_old_format(path: Path) -> None:
    (path / "orders-0" / f"{0:020}.log").write_bytes(bytes(16) + b"\x01" + bytes(30))


FAULTS: list[tuple[Callable[[Path], object], tuple[str, str]]] = [
    (lambda path: (path / "meta.properties").unlink(), ("error", "not-formatted")),
    (lambda path: (path / "stratalog.sqlite").touch(), ("error", "not-formatted")),
    (lambda path: (path / "meta.properties").write_bytes(b"\xff"), ("error", "damaged")),
    (lambda path: set_meta(path, version="0"), ("error", "damaged")),
    (lambda path: set_meta(path, node_id="x"), ("error", "damaged")),
    (lambda path: set_meta(path, directory_id="x"), ("error", "damaged")),
    (lambda path: set_meta(path, directory_id=None), ("note", "directory-id")),
    (lambda path: (path / ".kafka_cleanshutdown").unlink(), ("warning", "unclean")),
    (lambda path: (path / "orders-1.0123456789abcdef-future").mkdir(), ("error", "moving")),
    (lambda path: (path / "orders-1.0123456789abcdef-stray").mkdir(), ("note", "left-over")),
    (lambda path: (path / "orders-0" / "partition.metadata").unlink(), ("error", "topic-id")),
    (lambda path: (path / "orders-0" / "partition.metadata").write_text("x"), ("error", "topic-id")),
    (with_sparse_segment, ("error", "large-segment")),
    (with_large_index, ("error", "large-index")),
    (with_old_format, ("error", "old-format")),
]


@pytest.mark.parametrize(("damage", "wanted"), FAULTS)
def test_each_fault_is_found_and_nothing_is_changed(
    directory: Path, damage: Callable[[Path], object], wanted: tuple[str, str]
) -> None:
    assert kinds(directory) == []
    damage(directory)
    before = contents(directory)
    assert kinds(directory) == [wanted]
    assert contents(directory) == before


def test_the_owner_is_the_one_that_is_expected(directory: Path, tmp_path: Path) -> None:
    assert check_directories([directory])[0] == DirectoryOwner(CLUSTER, 3)
    assert kinds(directory, node_id=4) == [("error", "other-node")]
    format_dir(tmp_path / "second", cluster_id=CLUSTER, node_id=4)
    _, found = check_directories([directory, tmp_path / "second"])
    assert [each.kind for each in found] == ["several-owners", "unclean"]
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "meta.properties").write_bytes((directory / "meta.properties").read_bytes())
    _, found = check_directories([directory, tmp_path / "copy"])
    assert "has the same directory.id" in found[0].found


def test_a_directory_that_is_served_is_in_use(directory: Path) -> None:
    lock = hold(directory)
    assert lock is not None
    with lock:
        assert kinds(directory) == [("error", "in-use")]


def test_what_a_cluster_has_is_held_against_what_brokers_of_ours_can() -> None:
    owner, topics = DirectoryOwner(CLUSTER, 3), {"orders", "old"}
    fits = ClusterFacts(cluster_id=CLUSTER, features={"metadata.version": 30}, alive={1, 2}, voters={100}, tiered={"x"})
    assert check_cluster(fits, owner, topics) == []
    wrong = ClusterFacts(
        cluster_id="another",
        features={"metadata.version": 34, "unknown.version": 2},
        alive={1, 3},
        voters={3},
        acls=4,
        tiered={"old", "x"},
    )
    found = {each.kind: each for each in check_cluster(wrong, owner, topics, has_authorizer=False)}
    assert found.keys() == {"other-cluster", "feature", "authorizer", "controller", "in-use", "tiered"}
    assert "--feature unknown.version=0" in found["feature"].remedy
    assert found["tiered"].where == "old"
    with_plugin = {each.kind for each in check_cluster(wrong, owner, topics, has_authorizer=False, has_plugin=True)}
    assert with_plugin == found.keys() - {"tiered"}
    assert all(each.remedy and each.severity == "error" for each in found.values())


@pytest.mark.parametrize(
    ("acls", "has_authorizer", "wanted"),
    [
        (None, None, []),
        (None, False, []),
        (None, True, ["warning"]),
        (0, None, ["note"]),
        (0, False, ["error"]),
        (7, True, []),
    ],
)
def test_the_rules_of_a_cluster_need_an_authorizer_in_the_settings(
    acls: int | None, has_authorizer: bool | None, wanted: list[str]
) -> None:
    facts = ClusterFacts(cluster_id=CLUSTER, features={"metadata.version": 30}, acls=acls)
    found = check_cluster(facts, DirectoryOwner(CLUSTER, 3), set(), has_authorizer=has_authorizer)
    assert [(each.kind, each.severity) for each in found] == [("authorizer", each) for each in wanted]


def test_the_command_prints_findings_in_order_and_the_verdict(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cluster", "check", "--data-dir", str(directory)]) == 0
    assert capsys.readouterr().out == "can be taken over\n"
    (directory / ".kafka_cleanshutdown").unlink()
    with_old_format(directory)
    assert run(["cluster", "check", "--data-dir", str(directory), "--json"]) == 1
    first, second, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["kind"], second["kind"]) == ("old-format", "unclean")
    assert summary == {"type": "summary", "can_be_taken_over": False}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "process.roles=broker,controller",
            "process.roles=broker,controller: a broker that takes over must have no other role",
        ),
        ("log.segment.bytes=2147483648", "in a cluster no segment may"),
        ("node.id=4", "set node.id=3"),
        ("controller.quorum.bootstrap.servers=127.0.0.1:1", "check the addresses of the controllers"),
    ],
)
def test_settings_are_checked_too(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    properties = {
        "process.roles": "broker",
        "node.id": "3",
        "controller.quorum.bootstrap.servers": "127.0.0.1:1",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "log.dirs": str(directory),
    }
    key, value = line.split("=", 1)
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in {**properties, key: value}.items()))
    assert run(["cluster", "check", "--config", str(file)]) == 1
    assert said in capsys.readouterr().out


def test_keys_of_aivens_plugin_that_the_start_would_refuse_are_named(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    properties = {
        "process.roles": "broker",
        "node.id": "3",
        "controller.quorum.bootstrap.servers": "127.0.0.1:1",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "log.dirs": str(directory),
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "io.aiven.kafka.tieredstorage.RemoteStorageManager",
        "rsm.config.storage.backend.class": "io.aiven.kafka.tieredstorage.storage.gcs.GcsStorage",
        "rsm.config.chunk.size": "4194304",
    }
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in properties.items()))
    assert run(["cluster", "check", "--config", str(file), "--json"]) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()[:-1]]
    (about_settings,) = [each["found"] for each in found if each["kind"] == "settings"]
    gcs = "storage.backend.class=io.aiven.kafka.tieredstorage.storage.gcs.GcsStorage"
    assert about_settings.startswith(f"{gcs} is unknown")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing option '--data-dir', or log.dirs in a --config FILE"),
        (["--data-dir", "/nowhere"], "/nowhere: no such directory"),
        (["--config", "/nowhere"], "--config /nowhere: No such file or directory"),
    ],
)
def test_wrong_arguments_are_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert run(["cluster", "check", *arguments]) == 2
    assert said in capsys.readouterr().err
