"""`stratalog serve` as a user runs it: one ready line, one clear line for what is wrong, a clean end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from stratalog.cli.main import run
from stratalog.cli.serve import serve
from stratalog.errors import UsageError

COMMAND = [sys.executable, "-m", "stratalog", "serve"]


def refused(*arguments: str) -> str:
    """Run a command that must be refused with exit 2 and one line; give that line."""
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("stratalog: ")
    return line


class Served:
    """A served directory: the address, and the process to end."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *arguments, "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        match = re.fullmatch(r"ready broker=(127\.0\.0\.1:\d+) web=off\n", self.process.stdout.readline())
        assert match is not None
        self.address = match[1]

    def end(self, ending: signal.Signals = signal.SIGTERM) -> str:
        """End it, which must be clean; give what it printed on stderr."""
        assert self.process.stderr is not None
        with self.process:
            self.process.send_signal(ending)
            errors = self.process.stderr.read()
        assert self.process.returncode == 0
        return errors

    def next_error(self) -> str:
        """Wait for the next line on stderr, and give it; the end does not give it again."""
        assert self.process.stderr is not None
        return self.process.stderr.readline()


def test_the_log_is_json_and_levels_of_loggers_are_changed_live(tmp_path: Path) -> None:
    one = "transaction.state.log.num.partitions=1"
    served = Served("--data-dir", str(tmp_path / "data"), "--log-format", "json", "--set", one)
    entity = ("--entity-type", "broker-loggers", "--entity-name", "1", "-b", served.address)
    assert run(["configs", "alter", *entity, "--add-config", "stratalog.broker.transactions=INFO"]) == 0
    Producer({"bootstrap.servers": served.address, "transactional.id": "t\u00e9"}).init_transactions(30)
    errors = served.end()
    events = [json.loads(line) for line in errors.splitlines()]
    assert all({"ts", "level", "logger", "message"} <= event.keys() for event in events)
    reported = [event for event in events if event["message"].startswith("Transactional id t\u00e9:")]
    assert [(event["level"], event["logger"]) for event in reported] == [
        ("INFO", "stratalog.broker.transactions.coordinator")
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing option '--data-dir', or log.dirs in a --config FILE (see stratalog serve --help)"),
        (["--config", "missing\n.properties"], "missing .properties: No such file or directory"),
        (["--data-dir", "d", "--set", "log.retention.hours"], "--set log.retention.hours: expected KEY=VALUE"),
    ],
)
def test_a_start_that_is_refused_is_one_event_of_a_json_log(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "--log-format", "json", *arguments]) == 2
    reported = capsys.readouterr()
    assert reported.out == ""
    (event,) = map(json.loads, reported.err.splitlines())
    assert event.pop("ts").endswith("Z")
    assert event == {"level": "FATAL", "logger": "stratalog.cli.serve", "message": said}


def test_a_start_that_fails_on_the_way_is_an_event_with_a_traceback_if_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRATALOG_DEBUG", "1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [*COMMAND, "--log-format", "json", "--data-dir", str(tmp_path), "--listen", address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    (event,) = map(json.loads, done.stderr.splitlines())
    assert event["level"] == "FATAL"
    assert f"cannot listen on {address} for " in event["message"]
    assert event["exception"].startswith("Traceback")


def test_too_few_file_descriptors_are_one_line(tmp_path: Path) -> None:
    """Without them Python cannot load what would say what is wrong."""
    command = [sys.executable, "-m", "stratalog", "serve", f"--data-dir={tmp_path}", "--listen=127.0.0.1:0"]
    ended = subprocess.run(
        ["sh", "-c", 'ulimit -n 10 && exec "$@"', "sh", *command], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr == (
        "stratalog: the limit of open files is 10, and a broker needs at least 32: raise it (ulimit -n, LimitNOFILE)\n"
    )


def test_a_service_manager_hears_when_it_is_ready_and_when_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        served = Served("--data-dir", str(tmp_path / "data"))
        assert manager.recv(100) == b"READY=1"
        assert served.end() == ""
        assert manager.recv(100) == b"STOPPING=1"


def test_a_service_manager_that_does_not_listen_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nothing"))
    served = Served("--data-dir", str(tmp_path / "data"))
    assert served.end().count("could not be sent to the service manager") == 2


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_it_says_when_it_serves_and_ends_cleanly_on_a_signal(tmp_path: Path, ending: signal.Signals) -> None:
    served = Served("--data-dir", str(tmp_path))
    admin = AdminClient({"bootstrap.servers": served.address})
    admin.create_topics([NewTopic("orders", 2)])["orders"].result(30)
    assert served.end(ending) == ""
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert sorted(path.name for path in tmp_path.glob("orders-*")) == ["orders-0", "orders-1"]


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = refused("--data-dir", str(tmp_path), "--listen", address)
    assert f"cannot listen on {address} for " in line
    assert "the port is in use" in line


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    line = refused("--data-dir", str(tmp_path / "file" / "data"))
    assert f"{tmp_path}/file/data cannot be used: Not a directory" in line


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o500)
    assert "Permission denied" in refused("--data-dir", str(tmp_path / "data"))


def test_a_directory_of_another_format_version_is_left_as_it_is(tmp_path: Path) -> None:
    before = "cluster.id=abc\nnode.id=1\nversion=0\n"
    (tmp_path / "meta.properties").write_text(before)
    assert "format version is 0, expected 1" in refused("--data-dir", str(tmp_path))
    assert (tmp_path / "meta.properties").read_text() == before
    assert not (tmp_path / "stratalog.sqlite").exists()


def test_a_directory_that_is_served_is_not_served_twice(tmp_path: Path) -> None:
    served = Served("--data-dir", str(tmp_path))
    assert "in use by another broker" in refused("--data-dir", str(tmp_path))
    served.end()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "log.retention.hours=soon"], "Invalid value soon for configuration log.retention.hours"),
        (["--set", "log.retention.hours"], "expected KEY=VALUE"),
        (["--listen", "somewhere"], "listen address somewhere: expected HOST:PORT"),
        (["--listen", "127.0.0.1:70000"], "port from 0 to 65535"),
        (["--config", "missing.properties"], "missing.properties: No such file or directory"),
        (
            ["--set", "remote.log.storage.system.enable=true", "--set", "stratalog.remote.url=ftp://host/x"],
            "ftp://host/x is not an object store URL",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(tmp_path: Path, arguments: list[str], said: str) -> None:
    assert said in refused("--data-dir", str(tmp_path / "data"), *arguments)


def test_a_properties_file_is_read_and_the_command_line_goes_over_it(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    unknown = "controller.quorum.election.timeout.ms"
    properties.write_text(f"# as Kafka's\nnum.partitions=3\nlog.retention.hours=soon\n{unknown}=1000\n")
    served = Served(
        "--data-dir", str(tmp_path / "data"), "--config", str(properties), "--set", "log.retention.hours=24"
    )
    admin = AdminClient({"bootstrap.servers": served.address})
    admin.create_topics([NewTopic("orders")])["orders"].result(30)
    assert len(admin.list_topics("orders", 30).topics["orders"].partitions) == 3
    (line,) = served.end().splitlines()
    assert line.endswith(f"Unknown configuration keys: {unknown}")


def _file(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "server.properties"
    path.write_text("\n".join((f"log.dirs={tmp_path}/one,{tmp_path}/two", *lines)))
    return str(path)


def test_a_file_alone_is_enough(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.3", 0)) as free:
        port = free.getsockname()[1]
    config = _file(
        tmp_path,
        f"listeners=PLAINTEXT://127.0.0.3:{port},CONTROLLER://:9093",
        "controller.listener.names=CONTROLLER",
        "process.roles=broker,controller",
        "log.retention.hour=1",
    )
    process = subprocess.Popen(
        [*COMMAND, "--config", config], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == f"ready broker=127.0.0.3:{port} web=off\n"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0
    assert (tmp_path / "one" / "stratalog.sqlite").exists()
    assert (tmp_path / "two" / "meta.properties").exists()
    assert "log.retention.hour (did you mean log.retention.hours?)" in errors
    assert "Listener CONTROLLER://:9093 is not opened" in errors


def test_options_win_over_the_file(tmp_path: Path) -> None:
    config = _file(tmp_path, "listeners=PLAINTEXT://127.0.0.3:9", "advertised.listeners=PLAINTEXT://elsewhere:9")
    served = Served("--config", config, "--data-dir", str(tmp_path / "data"))
    assert str(AdminClient({"bootstrap.servers": served.address}).list_topics(timeout=30).brokers[1]).startswith(
        served.address
    )
    assert "is ignored because of --listen" in served.end()
    assert not (tmp_path / "one").exists()


@pytest.mark.parametrize("more", [[], ["--listen", "127.0.0.1:0"]], ids=["alone", "with --listen"])
@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("authorizer.class.name=com.example.OurAuthorizer", "authorizer.class.name"),
        ("controller.quorum.voters=1@a:1,2@b:1", "controller.quorum.voters"),
    ],
)
def test_what_a_file_asks_for_and_cannot_be_kept_refuses_the_start(
    tmp_path: Path, line: str, key: str, more: list[str]
) -> None:
    config = _file(tmp_path, line)
    said = refused("--config", config, *more)
    assert said.startswith(f"stratalog: {config}: {key}")
    assert f"--set {key}=" in said
    assert not (tmp_path / "one").exists()


def test_a_file_that_asks_for_tls_is_never_served_without_it(tmp_path: Path) -> None:
    config = _file(tmp_path, "listeners=SSL://127.0.0.1:0")
    assert refused("--config", config).startswith(f"stratalog: {config}: ssl.keystore.location is not set")
    said = refused("--config", config, "--listen", "127.0.0.1:0")
    assert said.startswith(f"stratalog: {config}: listeners")
    assert "--set listeners=" in said
    assert not (tmp_path / "one").exists()


def test_without_a_directory_it_is_advised_how_to_give_one() -> None:
    assert "Missing option '--data-dir', or log.dirs in a --config FILE" in refused()


def test_a_store_out_of_reach_is_one_line_and_the_local_tier_is_served(tmp_path: Path) -> None:
    served = Served(
        "--data-dir",
        str(tmp_path),
        "--set",
        "remote.log.storage.system.enable=true",
        "--set",
        "stratalog.remote.url=s3://bucket/prefix",
        "--set",
        "rsm.config.endpoint=http://127.0.0.1:9",
        "--set",
        "rsm.config.access_key_id=a",
        "--set",
        "rsm.config.secret_access_key=b",
        "--set",
        "rsm.config.max.retries=0",
    )
    admin = AdminClient({"bootstrap.servers": served.address})
    admin.create_topics([NewTopic("orders", 1, config={"remote.storage.enable": "true"})])["orders"].result(30)
    line = served.next_error()
    assert served.end() == ""
    assert "The object store of the remote tier cannot be used now" in line
    assert "cannot be reached" in line


def test_segments_past_the_range_in_force_are_refused_in_one_line_before_anything_is_written(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "new"
    line = refused("--data-dir", str(directory), "--set", "log.segment.bytes=2147483648")
    assert "Invalid value 2147483648 for configuration log.segment.bytes" in line
    assert "stratalog features upgrade --release-version 4.4" in line
    assert not directory.exists()


def test_a_new_directory_may_start_with_large_segments(tmp_path: Path) -> None:
    large = ("--set", "log.segment.bytes=4294967296", "--set", "log.index.size.max.bytes=12582912")
    served = Served("--data-dir", str(tmp_path), "--set", "stratalog.initial.metadata.version=32", *large)
    assert served.end() == ""
    served = Served("--data-dir", str(tmp_path), *large)
    assert served.end() == ""


def test_the_web_address_is_in_the_ready_line_and_serves_metrics(tmp_path: Path) -> None:
    arguments = ["--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0"]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            match = re.fullmatch(r"ready broker=127\.0\.0\.1:\d+ web=(http://127\.0\.0\.1:\d+/)\n", line)
            assert match is not None, line
            with urlopen(f"{match[1]}metrics", timeout=30) as answer:
                assert b"kafka_server_kafkaserver_brokerstate 3.0" in answer.read()
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_a_web_address_in_use_is_refused_before_the_data_is_touched(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        web = f"127.0.0.1:{taken.getsockname()[1]}"
        line = refused("--data-dir", str(tmp_path / "d"), "--listen", "127.0.0.1:0", "--web", web)
    assert "the port is in use" in line
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("web", ["nonsense", "127.0.0.1:99999", "on"])
def test_a_web_address_that_is_none_is_refused(tmp_path: Path, web: str) -> None:
    line = refused("--data-dir", str(tmp_path / "d"), "--listen", "127.0.0.1:0", "--web", web)
    assert "--web" in line


def test_other_threads_give_the_interpreter_up_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scraper of /metrics must not keep each request waiting for Python's 5 ms."""
    seen: list[float] = []

    def start(**_: object) -> None:
        seen.append(sys.getswitchinterval())
        raise UsageError("no broker in this test")

    monkeypatch.setattr("stratalog.broker.server.Broker", start)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    before = sys.getswitchinterval()
    try:
        with pytest.raises(UsageError):
            serve(data_dir=tmp_path, listen="127.0.0.1:0", web="off", config=None, set_=None, verbose=False)
    finally:
        sys.setswitchinterval(before)
    assert seen == [pytest.approx(0.0005)]
    assert before == pytest.approx(0.005)  # nothing else in the package touches it: it is the program's
