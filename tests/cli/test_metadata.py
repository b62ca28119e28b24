"""`stratalog metadata`: what a broker knows, as a document and back, whole or not at all."""

from __future__ import annotations

import copy
import json
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stratalog.broker.access import Acl, AclOperation, PatternType, Permission, ResourceType
from stratalog.broker.metadata import GROUP, STORE_FILE, MetadataStore
from stratalog.broker.metadata.document import export_document, import_document, parse_document
from stratalog.broker.server import Broker
from stratalog.cli.main import run
from stratalog.errors import UsageError
from stratalog.util import REAL_FILESYSTEM

_RULE = Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:a", "*", AclOperation.READ, Permission.ALLOW)
_PASSWORD = "ssl.keystore.password"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that a broker has served, with something of everything."""
    directory = tmp_path_factory.mktemp("data")
    with Broker(data_dir=directory) as broker:
        broker.create_topic("orders", 2, {"retention.ms": "-1"})
        broker.create_topic("cafe")
    with closing(MetadataStore.open(directory)) as store:
        store.add_acls([_RULE])
        store.change_client_quotas({(("client-id", None), ("user", "al ice")): {"request_percentage": 12.5}})
        store.set_broker_configs(None, {"log.retention.ms": "5", _PASSWORD: "secret"})
        store.change_credentials("SCRAM-SHA-256", {"alice": "hidden"})
        store.set_resource_configs(GROUP, "readers", {"consumer.session.timeout.ms": "50000"})
        store.allocate_producer_ids(7)
    return directory


@pytest.fixture
def good(data_dir: Path) -> dict[str, Any]:
    return export_document(data_dir)


def written(tmp_path: Path, content: dict[str, Any]) -> str:
    path = tmp_path / "metadata.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_what_is_imported_is_what_was_exported(tmp_path: Path, data_dir: Path) -> None:
    file, again = tmp_path / "m.json", tmp_path / "again"
    assert run(["metadata", "export", "--data-dir", str(data_dir), "-o", str(file), "--with-credentials"]) == 0
    assert run(["metadata", "import", str(file), "--data-dir", str(again)]) == 0
    assert export_document(again, with_credentials=True) == export_document(data_dir, with_credentials=True)
    with Broker(data_dir=again) as broker:
        metadata = broker.services.metadata
        assert metadata.cluster_id == json.loads(file.read_text())["clusterId"]
        assert metadata.topic("orders") is not None
        assert broker.services.topics is not None


def test_secrets_leave_only_on_demand_and_only_for_their_owner(tmp_path: Path, data_dir: Path) -> None:
    assert "secret" not in json.dumps(export_document(data_dir))
    assert "hidden" not in json.dumps(export_document(data_dir))
    file = tmp_path / "m.json"
    (tmp_path / "m.json.tmp").write_text("left by a crash, for all to read")
    for _ in range(2):
        assert run(["metadata", "export", "--data-dir", str(data_dir), "-o", str(file), "--with-credentials"]) == 0
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        content = json.loads(file.read_text())
        assert content["credentials"] == [{"kind": "SCRAM-SHA-256", "name": "alice", "value": "hidden"}]
        assert content["brokerConfigs"][""][_PASSWORD] == "secret"
    assert run(["metadata", "export", "--data-dir", str(data_dir), "--with-credentials"]) == 2


def test_a_broker_that_serves_is_exported_and_not_imported_into(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Broker(data_dir=tmp_path / "d") as broker:
        broker.create_topic("live")
        content = export_document(tmp_path / "d")
        assert "live" in {topic["name"] for topic in content["topics"]}
        file = written(tmp_path, content)
        assert run(["metadata", "import", file, "--data-dir", str(tmp_path / "d"), "--replace"]) == 2
    assert "in use by a broker" in capsys.readouterr().err


def test_metadata_that_is_there_is_replaced_on_demand_only(
    tmp_path: Path, good: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    file, target = written(tmp_path, good), tmp_path / "target"
    with closing(MetadataStore.open(target, cluster_id=good["clusterId"])) as store:
        store.create_topic("old", 1, created_ms=1)
    assert run(["metadata", "import", file, "--data-dir", str(target)]) == 2
    assert "--replace" in capsys.readouterr().err
    assert run(["metadata", "import", file, "--data-dir", str(target), "--replace", "--dry-run"]) == 0
    assert [topic["name"] for topic in export_document(target)["topics"]] == ["old"]
    assert run(["metadata", "import", file, "--data-dir", str(target), "--replace"]) == 0
    assert export_document(target) == good


class _Dies(Exception):
    """The process is gone."""


def test_a_kill_at_any_step_leaves_the_old_or_the_new(tmp_path: Path, good: dict[str, Any]) -> None:
    outcomes = []
    for step in range(40):
        target = tmp_path / str(step)
        with closing(MetadataStore.open(target, cluster_id="old")) as store:
            store.create_topic("old", 1, created_ms=1)
        before = export_document(target)
        fs = _MortalFileSystem(step)
        try:
            import_document(good, target, replace=True, fs=fs)  # type: ignore[arg-type]
        except _Dies:
            found = export_document(target)
            assert found in (before, good), step
            outcomes.append(found == good)
            import_document(good, target, replace=True)  # what was left is in no one's way
            assert export_document(target) == good
        else:
            break
    assert outcomes[0] is False
    assert outcomes == sorted(outcomes)
    assert outcomes[-1] is True


class _MortalFileSystem:
    """The real one, until the process dies at one of its calls that change something."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def __getattr__(self, name: str) -> Any:
        call = getattr(REAL_FILESYSTEM, name)
        if name not in ("make_dirs", "remove", "rename", "sync_dir", "open"):
            return call

        def counted(*args: Any, **kwargs: Any) -> Any:
            if self._left == 0:
                raise _Dies
            self._left -= 1
            return call(*args, **kwargs)

        return counted


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{}",
        b'{"format": "stratalog-metadata"}',
        b'{"format": "stratalog-metadata", "version": true}',
        b'{"format": "stratalog-metadata", "version": 2}',
        b'{"format": "stratalog-metadata", "version": 1}',
        b"[" * 100_000,
        b'{"format": "stratalog-metadata", "version": 1, "clusterId": "\\ud800"}',
    ],
)
def test_what_is_no_document_is_refused_in_one_line(
    tmp_path: Path, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(data)
    for command in (["check", str(file)], ["import", str(file), "--data-dir", str(tmp_path / "d")]):
        assert run(["metadata", *command]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "internal error" not in line
    assert not (tmp_path / "d").exists()


def _changed(good: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    content = copy.deepcopy(good)
    place: Any = content
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return content


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("clusterId",), ""),
        (("features",), {}),
        (("features", "metadata.version"), 9999),
        (("features", "metadata.version"), "32"),
        (("features", "no.such"), 1),
        (("nextProducerId",), -1),
        (("nextProducerId",), 2**70),
        (("topics", 0, "name"), "../up"),
        (("topics", 0, "name"), "orders"),
        (("topics", 0, "id"), "x"),
        (("topics", 0, "partitions"), 0),
        (("topics", 0, "createdMs"), 2**70),
        (("topics", 0, "configs"), {"retention.ms": "soon"}),
        (("brokerConfigs", "x"), {}),
        (("groupConfigs", "readers", "no.such.key"), "1"),
        (("groupConfigs", "readers", "consumer.session.timeout.ms"), "soon"),
        (("clientQuotas", 0, "key"), "fly"),
        (("clientQuotas", 0, "value"), -1.0),
        (("acls", 0, "resource_type"), 99),
        (("acls", 0, "more"), 1),
        (("acls", 0), 5),
        (("acls", 0, "host"), ["*"]),
        (("acls", 0, "name"), 5),
        (("brokerConfigs", "9" * 5000), {}),
        (("clientQuotas", 0, "entity"), {"user": ["alice"]}),
        (("clientQuotas", 0, "entity"), {"user": 5}),
        (("credentials",), [{"kind": "scram", "name": "SCRAM-SHA-256/alice", "value": "junk"}]),
        (("credentials",), [{"kind": "scram", "name": "SCRAM-SHA-256/alice", "value": "{}"}]),
        (("credentials",), [{"kind": "scram", "name": "alice", "value": '["YQ==", "YQ==", "YQ==", 4096]'}]),
    ],
)
def test_bad_values_are_named_and_nothing_is_imported(
    tmp_path: Path, good: dict[str, Any], path: tuple[Any, ...], value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, _changed(good, path, value))
    assert run(["metadata", "check", file]) == 1
    assert capsys.readouterr().out.strip()
    assert run(["metadata", "import", file, "--data-dir", str(tmp_path / "d")]) == 2
    assert "internal error" not in capsys.readouterr().err
    assert not (tmp_path / "d" / STORE_FILE).exists()


@pytest.mark.parametrize(
    ("path", "value"),
    [(("topics", 0), 5), (("topics", 0, "configs"), {"a": 1}), (("brokerConfigs", ""), 1), (("credentials",), [1])],
)
def test_fields_of_the_wrong_kind_are_no_document(good: dict[str, Any], path: tuple[Any, ...], value: Any) -> None:
    with pytest.raises(UsageError):
        parse_document(json.dumps(_changed(good, path, value)).encode(), "x")


def test_the_check_says_what_of_a_directory_the_document_does_not_know(
    tmp_path: Path, data_dir: Path, good: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["metadata", "check", written(tmp_path, good), "--data-dir", str(data_dir)]) == 0
    at = [topic["name"] for topic in good["topics"]].index("orders")
    bad = _changed(_changed(good, ("topics", at, "partitions"), 1), ("clusterId",), "another")
    assert run(["metadata", "check", written(tmp_path, bad), "--data-dir", str(data_dir), "--json"]) == 1
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["problems"]
    assert [text.split(":")[0] for text in found][1:] == ["orders-1"]
    bad = _changed(good, ("topics", at, "id"), "dfcT2RzVTaa2kKZb1VMYtg")
    assert run(["metadata", "check", written(tmp_path, bad), "--data-dir", str(data_dir)]) == 1
    assert capsys.readouterr().out.count("would be set aside") == 2


def test_a_directory_without_metadata_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["metadata", "export", "--data-dir", str(tmp_path)]) == 2
    assert STORE_FILE in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
