"""A broker's start and end: what it refuses to start on, what it leaves behind, what it finds again."""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.wire import Wire

import stratalog
from stratalog.broker.security import Listener
from stratalog.broker.server.listen_address import ListenAddress, parse_address
from stratalog.broker.server.open_listeners import open_listeners
from stratalog.broker.server.server import Broker, serve
from stratalog.config.broker import BrokerConfig
from stratalog.errors import DataDirError, InvalidConfigError, StratalogError, UsageError
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.wire import protocol
from stratalog.wire.api_keys import ApiKey


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def append(broker: Broker, topic: str, *values: bytes, **options: Any) -> int:
    partition = broker.services.partition(topic, 0)
    assert partition is not None
    now_ms = int(time.time() * 1000)  # producer state expires by the time of its last batch
    records = build_batch([Record(n, now_ms + n, None, value) for n, value in enumerate(values)], **options)
    return partition.append(records).first_offset


def test_without_a_directory_one_is_made_and_removed() -> None:
    with Broker() as broker:
        (directory,) = [one.path for one in broker.services.logs.dirs.live]
        assert directory.is_dir()
    assert not directory.exists()


def test_the_package_offers_the_broker_lazily() -> None:
    assert stratalog.Broker is Broker
    with pytest.raises(AttributeError, match="nonsense"):
        stratalog.nonsense  # noqa: B018
    code = "import stratalog, sys; print(sorted(m for m in sys.modules if m.startswith('stratalog.')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_a_restart_finds_everything_again(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        topic = broker.services.topics.create("t", 3, {"retention.ms": "-1"})
        cluster_id = broker.services.cluster_id
        append(broker, "t", b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=0)
    with Broker(data_dir=tmp_path) as broker:
        assert broker.services.cluster_id == cluster_id
        assert broker.services.metadata.topic("t") == topic
        partition = broker.services.partition("t", 0)
        assert partition is not None
        assert (partition.log.log_end_offset, partition.log.high_watermark) == (2, 2)
        assert partition.leader_epoch == 0
        assert append(broker, "t", b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=0) == 0  # a duplicate
        assert append(broker, "t", b"c", producer_id=5, producer_epoch=0, base_sequence=2) == 2
        assert broker.services.load_report.recovered == 0


def test_the_directory_says_whose_it_is_as_kafka_would(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config={"node.id": 7}) as broker:
        cluster_id = broker.services.cluster_id
        text = (tmp_path / "meta.properties").read_text()
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
    lines = dict(line.split("=", 1) for line in text.splitlines())
    assert (lines["version"], lines["cluster.id"], lines["node.id"]) == ("1", cluster_id, "7")
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_deletion_that_was_interrupted_is_finished_at_the_next_start(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.services.topics.create("doomed", 2)
        append(broker, "doomed", b"v")
        broker.services.store.begin_delete_topic("doomed")
    with Broker(data_dir=tmp_path) as broker:
        assert broker.services.store.deleting_topics() == []
        assert broker.services.partition("doomed", 0) is None
        assert not (tmp_path / "doomed-0").exists()
        broker.services.topics.create("doomed", 1)
        assert append(broker, "doomed", b"again") == 0


def test_a_creation_that_fails_half_way_leaves_no_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(data_dir=tmp_path) as broker:
        monkeypatch.setattr(broker.services.logs, "create_topic", fail_with(OSError(28, "No space left on device")))
        with pytest.raises(StratalogError, match="No space left"):
            broker.services.topics.create("t", 1)
        monkeypatch.undo()
        assert broker.services.metadata.topic("t") is None
        broker.services.topics.create("t", 1)


def fail_with(error: Exception) -> Any:
    def fail(*_: object) -> None:
        raise error

    return fail


def test_several_directories_share_the_partitions(tmp_path: Path) -> None:
    dirs = [tmp_path / "one", tmp_path / "two"]
    with Broker(data_dir=[str(path) for path in dirs]) as broker:
        broker.services.topics.create("t", 4)
        cluster_id = broker.services.cluster_id
    assert [len(list(path.glob("t-*"))) for path in dirs] == [2, 2]
    with Broker(config={"log.dirs": ",".join(map(str, dirs))}) as broker:
        assert broker.services.cluster_id == cluster_id
        assert len(broker.services.logs.partitions("t")) == 4


# --- what it refuses --------------------------------------------------------------------------------------------------


def one_line(error: BaseException) -> str:
    text = str(error)
    assert text
    assert "\n" not in text
    return text


def test_a_port_in_use_is_one_line_and_leaves_no_directory(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UsageError) as caught:
            Broker(data_dir=tmp_path / "new", listen=address)
    assert address in one_line(caught.value)
    assert "in use" in str(caught.value)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("listen", ["nonsense", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:-1", "a:b:c", ":x", "[::1]"])
def test_an_address_that_is_none_is_one_line(tmp_path: Path, listen: str) -> None:
    with pytest.raises(UsageError) as caught:
        Broker(data_dir=tmp_path / "new", listen=listen)
    assert listen in one_line(caught.value)
    assert not (tmp_path / "new").exists()


def test_an_address_of_another_machine_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        Broker(data_dir=tmp_path, listen="192.0.2.1:0")
    assert "192.0.2.1:0" in one_line(caught.value)


def test_a_bad_value_is_one_line_that_names_the_key(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        Broker(data_dir=tmp_path / "new", config={"num.partitions": "none"})
    assert "num.partitions" in one_line(caught.value)
    assert not (tmp_path / "new").exists()


def test_no_directory_at_all_is_one_line() -> None:
    with pytest.raises(UsageError) as caught:
        Broker(config={"log.dirs": ""})
    assert "log.dirs" in one_line(caught.value)


def test_a_directory_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    with pytest.raises(DataDirError) as caught:
        Broker(data_dir=path)
    assert str(path) in one_line(caught.value)
    assert path.read_text() == "x"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(DataDirError) as caught:
            Broker(data_dir=tmp_path)
        assert str(tmp_path) in one_line(caught.value)
    finally:
        tmp_path.chmod(0o755)


def test_a_read_only_file_system_is_one_line() -> None:
    with pytest.raises(DataDirError) as caught:
        Broker(data_dir="/proc/stratalog")
    assert "/proc/stratalog" in one_line(caught.value)


def test_a_directory_in_use_is_refused_and_goes_on(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.services.topics.create("t", 1)
        with pytest.raises(DataDirError) as caught:
            Broker(data_dir=tmp_path)
        assert "in use" in one_line(caught.value)
        append(broker, "t", b"v")
        with Wire(broker.bootstrap_servers) as wire:
            assert wire.call(ApiKey.METADATA, 12, topics=None).topics[0].name == "t"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("version=1", "version=2", "format version is 2"),
        ("node.id=1", "node.id=3", "node.id is 3"),
        ("cluster.id=", "cluster.id=x", "cluster"),
        ("version=1", "version", "damaged"),
    ],
)
def test_a_directory_of_another_kind_is_refused_as_it_is(tmp_path: Path, old: str, new: str, said: str) -> None:
    with Broker(data_dir=tmp_path):
        pass
    meta = tmp_path / "meta.properties"
    meta.write_text(meta.read_text().replace(old, new))
    before = contents(tmp_path)
    with pytest.raises(DataDirError) as caught:
        Broker(data_dir=tmp_path)
    assert said in one_line(caught.value)
    after = contents(tmp_path)
    assert {name: after[name] for name in before if "sqlite" not in name} == {
        name: data for name, data in before.items() if "sqlite" not in name
    }


def test_a_kafka_directory_of_an_unknown_version_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=9\ncluster.id=abc\nnode.id=1\n")
    before = contents(tmp_path)
    with pytest.raises(DataDirError, match="format version is 9"):
        Broker(data_dir=tmp_path)
    after = contents(tmp_path)
    after.pop(".lock", None)
    assert after == before


def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path):
        pass
    with sqlite3.connect(tmp_path / "stratalog.sqlite") as db:
        db.execute("UPDATE meta SET value = '999' WHERE key = 'format.version'")
    db.close()
    with pytest.raises(DataDirError, match="999"):
        Broker(data_dir=tmp_path)
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_nothing_is_left_running_after_a_start_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratalog.broker.server.server.start_services", fail_with(UsageError("no store")))
    before = set(threading.enumerate())  # threads of an earlier broker among them may end concurrently
    with pytest.raises(UsageError, match="no store"):
        Broker(data_dir=tmp_path)
    monkeypatch.undo()
    assert set(threading.enumerate()) <= before
    with Broker(data_dir=tmp_path):
        pass


# --- running ----------------------------------------------------------------------------------------------------------


def test_close_may_be_called_again_and_clients_are_let_go(tmp_path: Path) -> None:
    broker = Broker(data_dir=tmp_path)
    broker.services.topics.create("t", 1)
    with Wire(broker.bootstrap_servers) as wire:
        entry = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
        wire.send(
            ApiKey.FETCH,
            11,
            max_wait=600_000,
            min_bytes=1,
            session_epoch=-1,
            topics=[{"topic": "t", "partitions": [entry]}],
        )
        broker.close()
        broker.close()
        with pytest.raises(ConnectionError):
            wire.receive(ApiKey.FETCH, 11)


def test_serves_on_a_loop_of_the_caller(tmp_path: Path) -> None:
    async def main() -> str:
        stop = asyncio.Event()
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(serve(tmp_path, "127.0.0.1:0", stop=stop, on_ready=ready.set_result))
        address = await ready
        cluster_id = await asyncio.to_thread(ask, address)
        stop.set()
        await serving
        return cluster_id

    def ask(address: str) -> str:
        with Wire(address) as wire:
            return str(wire.call(ApiKey.METADATA, 12, topics=[]).cluster_id)

    cluster_id = asyncio.run(main())
    assert f"cluster.id={cluster_id}" in (tmp_path / "meta.properties").read_text()
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_wildcard_listener_tells_each_client_the_address_that_it_reached(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, listen="0.0.0.0:0") as broker:
        port = broker.bootstrap_servers.rpartition(":")[2]
        for host in ("127.0.0.1", "127.0.0.2"):
            with Wire(f"{host}:{port}") as wire:
                assert wire.call(ApiKey.METADATA, 12, topics=[]).brokers[0].host == host


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_listens_on_ipv6(tmp_path: Path) -> None:
    try:
        broker = Broker(data_dir=tmp_path, listen="[::1]:0")
    except UsageError as error:
        pytest.skip(str(error))
    with broker:
        assert broker.bootstrap_servers.startswith("[::1]:")
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        socket.create_connection(("::1", port)).close()


def test_advertised_listeners_are_what_clients_are_reported() -> None:
    def advertised(value: str | None) -> Listener:
        config = BrokerConfig({"listeners": "PLAINTEXT://:0", "advertised.listeners": value})
        with closing(open_listeners(None, config)) as opened:
            return opened.inter_broker

    assert advertised("PLAINTEXT://kafka.example:29092") == Listener("kafka.example", 29_092)
    assert advertised("SSL://x:1,PLAINTEXT://y:2") == Listener("y", 2)
    assert advertised(None).host == ""
    with pytest.raises(InvalidConfigError, match="wildcard"):
        advertised("PLAINTEXT://0.0.0.0:9092")
    with pytest.raises(InvalidConfigError, match="PLAINTEXT"):
        advertised("SSL://x:1")


def test_addresses_are_parsed() -> None:
    assert parse_address("h:1", "x") == ListenAddress("h", 1)
    assert parse_address(":0", "x") == ListenAddress("", 0)
    assert parse_address("[::1]:9092", "x") == ListenAddress("::1", 9092)
    assert str(ListenAddress("::1", 1)) == "[::1]:1"


def test_hiding_a_package_from_an_import_leaves_no_gap_to_other_threads() -> None:
    """Another thread may be half-way through the list of finders when kio is imported: that list must not change."""
    walked = sys.meta_path
    protocol._kio.__wrapped__()
    assert sys.meta_path == walked
    assert sys.meta_path is not walked
