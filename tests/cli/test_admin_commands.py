"""`stratalog topics|configs|features|log-dirs` on a broker of ours: what they do, what they print, how they fail."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.cli.admin_commands import CommandLine

from stratalog.broker.server.server import Broker
from stratalog.cli import configs, features, log_dirs, topics
from stratalog.cli.main import run
from stratalog.config.other_features import OTHER_FEATURES, level_with

COMMANDS = (
    ("topics", "create", "t"),
    ("topics", "list"),
    ("topics", "describe"),
    ("topics", "alter", "t", "--partitions", "2"),
    ("topics", "delete", "t"),
    ("configs", "describe", "--entity-type", "topics"),
    ("configs", "alter", "--entity-type", "topics", "--entity-name", "t", "--add-config", "retention.ms=1"),
    ("features", "describe"),
    ("features", "upgrade", "--release-version", "4.4"),
    ("features", "downgrade", "--feature", "metadata.version=30"),
    ("log-dirs", "describe"),
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def cli(broker: Broker, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(broker.bootstrap_servers, capsys)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is a wide terminal."""
    monkeypatch.setenv("COLUMNS", "200")
    for module in (topics, configs, features, log_dirs):
        monkeypatch.setattr(module, "on_terminal", lambda: True)


# --- topics -----------------------------------------------------------------------------------------------------------


def test_a_topic_is_created_listed_described_grown_and_deleted(cli: CommandLine, broker: Broker) -> None:
    made = cli.good("topics", "create", "orders", "--partitions", "2", "--config", "retention.ms=5000")
    assert made.out == "Created topic orders.\n"
    cli.good("topics", "create", "--topic", "a")
    assert cli.good("topics", "list").out == "a\norders\n"
    cli.good("topics", "alter", "orders", "--partitions", "3")
    topic = broker.services.metadata.topic("orders")
    assert topic is not None
    lines = cli.good("topics", "describe", "orders").out.splitlines()
    head = dict(part.split(": ", 1) for part in lines[0].split("\t"))
    assert head["Topic"] == "orders"
    assert (head["PartitionCount"], head["ReplicationFactor"]) == ("3", "1")
    assert head["Configs"] == "retention.ms=5000"
    assert lines[1:] == [f"\tTopic: orders\tPartition: {n}\tLeader: 1\tReplicas: 1\tIsr: 1" for n in range(3)]
    cli.good("topics", "delete", "orders", "a")
    assert cli.good("topics", "list").out == ""


def test_topics_are_written_for_programs(cli: CommandLine) -> None:
    assert cli.good("topics", "create", "t", "--config", "retention.ms=5000", "--json").json == {
        "topic": "t",
        "created": True,
        "dryRun": False,
    }
    assert cli.good("topics", "list", "--json").json == {"topic": "t"}
    topic = cli.good("topics", "describe", "t", "--json").json
    assert (topic["topic"], topic["configs"]) == ("t", {"retention.ms": "5000"})
    assert topic["partitions"] == [{"partition": 0, "leader": 1, "replicas": [1], "isr": [1]}]
    assert cli.good("topics", "delete", "t", "--json").json == {"deleted": ["t"]}


def test_what_is_there_already_or_is_not_there_may_be_no_error(cli: CommandLine) -> None:
    cli.good("topics", "create", "t")
    assert cli.refused("topics", "create", "t").endswith("TOPIC_ALREADY_EXISTS: Topic 't' already exists.")
    assert cli.good("topics", "create", "t", "--if-not-exists").out == ""
    assert cli.refused("topics", "delete", "u") == "Topic 'u' does not exist"
    cli.good("topics", "delete", "t", "u", "--if-exists")
    assert cli.good("topics", "list").out == ""


def test_a_dry_run_changes_nothing(cli: CommandLine) -> None:
    assert cli.good("topics", "create", "t", "--dry-run").out == "Topic t can be created.\n"
    assert cli.good("topics", "list").out == ""
    cli.good("topics", "create", "t")
    cli.good("topics", "alter", "t", "--partitions", "7", "--dry-run")
    assert len(cli.good("topics", "describe", "t").out.splitlines()) == 2
    entity = ("--entity-type", "topics", "--entity-name", "t")
    cli.good("configs", "alter", *entity, "--add-config", "retention.ms=1", "--dry-run")
    assert len(cli.good("configs", "describe", *entity).out.splitlines()) == 1
    up = cli.good("features", "upgrade", "--feature", "metadata.version=32", "--dry-run")
    assert up.out == "metadata.version can be upgraded to 32.\n"
    assert "4.4-IV0" in cli.good("features", "describe").out


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "describe", "nope"),
        ("topics", "alter", "nope", "--partitions", "2"),
        ("topics", "delete", "nope"),
        ("configs", "describe", "--entity-type", "topics", "--entity-name", "nope"),
        (
            "configs",
            "alter",
            "--entity-type",
            "topics",
            "--entity-name",
            "nope",
            "--add-config",
            "flush.ms=1",
        ),
        ("log-dirs", "describe", "--topic-list", "nope"),
    ],
)
def test_a_topic_that_is_not_there_is_named(cli: CommandLine, command: tuple[str, ...]) -> None:
    assert cli.refused(*command) == "Topic 'nope' does not exist"
    assert cli.good("topics", "list").out == ""


# --- configs ----------------------------------------------------------------------------------------------------------


def test_configs_of_a_topic_are_set_shown_and_deleted(cli: CommandLine) -> None:
    cli.good("topics", "create", "t")
    entity = ("--entity-type", "topics", "--entity-name", "t")
    done = cli.good("configs", "alter", *entity, "--add-config", "cleanup.policy=[compact,delete],flush.ms=7")
    assert done.out == "Completed updating config for topic t.\n"
    policy = "cleanup.policy=compact,delete"
    assert cli.good("configs", "describe", *entity).out.splitlines() == [
        "Dynamic configs for topic t are:",
        (
            f"  {policy} sensitive=false "
            f"synonyms={{DYNAMIC_TOPIC_CONFIG:{policy}, DEFAULT_CONFIG:log.cleanup.policy=delete}}"
        ),
        "  flush.ms=7 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:flush.ms=7}",
    ]
    cli.good("configs", "alter", *entity, "--delete-config", "flush.ms,cleanup.policy")
    assert cli.good("configs", "describe", *entity).out == "Dynamic configs for topic t are:\n"
    everything = cli.good("configs", "describe", *entity, "--all").out
    assert everything.startswith("All configs for topic t are:\n")
    assert "  segment.bytes=1073741824 sensitive=false synonyms={DEFAULT_CONFIG:log.segment.bytes" in everything


def test_configs_of_brokers_are_set_for_one_or_for_all(cli: CommandLine) -> None:
    one, every = (
        ("--entity-type", "brokers", "--entity-name", "1"),
        ("--entity-type", "brokers", "--entity-default"),
    )
    assert cli.good("configs", "alter", *every, "--add-config", "min.topic.segment.ms=60000").out == (
        "Completed updating default config for brokers in the cluster.\n"
    )
    cli.good("configs", "alter", *one, "--add-config", "log.retention.ms=1000")
    setting = "min.topic.segment.ms=60000"
    assert cli.good("configs", "describe", *every).out.splitlines() == [
        "Default configs for brokers in the cluster are:",
        f"  {setting} sensitive=false synonyms={{DYNAMIC_DEFAULT_BROKER_CONFIG:{setting}}}",
    ]
    own = cli.good("configs", "describe", *one, "--json").json
    assert [(c["name"], c["value"], c["source"]) for c in own["configs"]] == [
        ("log.retention.ms", "1000", "DYNAMIC_BROKER_CONFIG")
    ]


def test_what_the_broker_says_of_a_bad_value_is_passed_on(cli: CommandLine) -> None:
    cli.good("topics", "create", "t")
    entity = ("--entity-type", "topics", "--entity-name", "t")
    said = cli.refused("configs", "alter", *entity, "--add-config", "segment.bytes=4294967296")
    assert said.startswith(
        "Could not alter topic t: INVALID_CONFIG: Invalid value 4294967296 for configuration segment.bytes: "
        "Value must be between 1048576 and 2147483647"
    )
    assert "stratalog features upgrade --release-version 4.4" in said
    assert "INVALID_CONFIG" in cli.refused("topics", "create", "u", "--config", "segment.ms=1")
    assert "there is no broker 9; brokers: 1" in cli.refused(
        "configs", "describe", "--entity-type", "brokers", "--entity-name", "9"
    )


# --- features ---------------------------------------------------------------------------------------------------------


def test_features_are_described_as_kafka_features_does(cli: CommandLine) -> None:
    lines = cli.good("features", "describe").out.splitlines(keepends=True)
    assert len(lines) == 1 + len(OTHER_FEATURES)
    assert lines[3] == (
        f"Feature: {'metadata.version':<40}  SupportedMinVersion: {'3.3-IV3':<15}  "
        f"SupportedMaxVersion: {'4.4-IV2':<15}  FinalizedVersionLevel: {'4.4-IV0':<15}  Epoch: 0\n"
    )
    reported = cli.good("features", "describe", "--json").json
    assert reported["epoch"] == 0
    assert [feature["feature"] for feature in reported["features"]] == sorted([*OTHER_FEATURES, "metadata.version"])
    assert reported["features"][3] == {
        "feature": "metadata.version",
        "supportedMinVersion": 7,
        "supportedMaxVersion": 33,
        "finalizedVersionLevel": 31,
        "finalizedVersion": "4.4-IV0",
    }


def test_the_release_switches_large_segments_on_and_nothing_switches_them_off(cli: CommandLine) -> None:
    cli.good("features", "downgrade", "--feature", "metadata.version=30")
    cli.good("topics", "create", "t")
    large = ("configs", "alter", "--entity-type", "topics", "--entity-name", "t", "--add-config")
    cli.refused(*large, "segment.bytes=4294967296")
    up = cli.good("features", "upgrade", "--release-version", "4.4")
    assert "metadata.version was upgraded to 33.\n" in up.out
    assert "eligible.leader.replicas.version was upgraded to 1.\n" in up.out
    cli.good(*large, "segment.bytes=4294967296")
    for options in ((), ("--unsafe",), ("--dry-run",)):
        said = cli.refused("features", "downgrade", "--feature", "metadata.version=31", *options)
        assert said.startswith("Could not downgrade metadata.version to 31: INVALID_UPDATE_VERSION: ")
        assert "segments past 2 GiB" in said
    (line,) = [line for line in cli.good("features", "describe").out.splitlines() if "metadata.version" in line]
    assert "4.4-IV2" in line.split("FinalizedVersionLevel")[1]


@pytest.mark.parametrize(
    ("release", "level"), [("4.4", 33), ("4.4-IV1", 32), ("4.4-IV0", 31), ("4.3", 30), ("3.3-IV3", 7)]
)
def test_a_release_means_its_newest_level(cli: CommandLine, release: str, level: int) -> None:
    cli.good("features", "downgrade", "--feature", "metadata.version=7")
    for feature in ("group.version", "share.version", "streams.version", "transaction.version"):
        cli.good("features", "downgrade", "--feature", f"{feature}=0")
    done = cli.good("features", "upgrade", "--release-version", release, "--json").json
    others = {name: level_with(name, level) for name in OTHER_FEATURES}
    moved = {"metadata.version": level} | {name: other for name, other in others.items() if other}
    assert done == {"dryRun": False, "type": "upgrade", "features": moved}


# --- log directories --------------------------------------------------------------------------------------------------


def test_log_directories_are_reported_in_kafkas_shape(cli: CommandLine, tmp_path: Path) -> None:
    for name in ("a", "b"):
        cli.good("topics", "create", name, "--partitions", "2")
    expected = {
        "brokers": [
            {
                "broker": 1,
                "logDirs": [
                    {
                        "partitions": [
                            {"partition": f"b-{n}", "size": 0, "offsetLag": 0, "isFuture": False} for n in range(2)
                        ],
                        "error": None,
                        "logDir": str(tmp_path / "data"),
                    }
                ],
            }
        ],
        "version": 1,
    }
    ran = cli.good("log-dirs", "describe", "--topic-list", "b", "--json")
    assert ran.json == expected
    text = cli.good("log-dirs", "describe", "--topic-list", "b").out.splitlines()
    assert text[:2] == [
        "Querying brokers for log directories information",
        "Received log directory information from brokers 1",
    ]
    assert text[2] == ran.out.strip()
    everything = cli.good("log-dirs", "describe", "--broker-list", "1", "--json").json
    assert len(everything["brokers"][0]["logDirs"][0]["partitions"]) == 4


def test_log_directories_tell_the_remote_sizes_of_tiered_partitions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {
        "remote.log.storage.system.enable": "true",
        "remote.log.metadata.topic.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "20",
        "stratalog.remote.url": f"file://{tmp_path}/bucket",
    }
    with Broker(data_dir=tmp_path / "data", config=config) as broker:
        cli = CommandLine(broker.bootstrap_servers, capsys)
        small = ("--config", "internal.segment.bytes=1000")
        cli.good("topics", "create", "tiered", "--config", "remote.storage.enable=true", *small)
        cli.good("topics", "create", "local")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
        for number in range(5):
            producer.produce("tiered", value=bytes(800), key=str(number).encode())
            assert producer.flush(30) == 0
        deadline = time.monotonic() + 60
        while (sizes := remote_sizes(cli))["tiered-0"] == 0 or sizes["tiered-0"] != copied(tmp_path / "bucket"):
            assert time.monotonic() < deadline, sizes
            time.sleep(0.05)
        assert sizes["local-0"] is None


def remote_sizes(cli: CommandLine) -> dict[str, int | None]:
    (directory,) = cli.good("log-dirs", "describe", "--json").json["brokers"][0]["logDirs"]
    return {part["partition"]: part.get("remoteSize") for part in directory["partitions"]}


def copied(bucket: Path) -> int:
    """Bytes of the segments in a bucket, when all four that are sealed have come."""
    segments = [path for path in bucket.rglob("*.log") if path.stat().st_size]
    return sum(path.stat().st_size for path in segments) if len(segments) == 4 else -1


# --- for all of them --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("command", [c for c in COMMANDS if c[1] == "describe"])
def test_a_terminal_gets_tables(cli: CommandLine, command: tuple[str, ...]) -> None:
    cli.good("topics", "create", "orders", "--config", "retention.ms=7")
    out = cli.good(*command).out
    assert "──" in out
    assert ("orders" in out) or ("4.4-IV0" in out)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_broker_that_is_not_there_is_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    with socket.socket() as taken:  # bound, but no one listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = CommandLine(address, capsys).refused(*command, code=2)
    assert said == f"cannot reach a broker at {address}: Connection refused"


def test_the_first_address_that_answers_is_taken(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        both = f"127.0.0.1:{taken.getsockname()[1]}, {broker.bootstrap_servers}"
        assert CommandLine(both, capsys).good("topics", "list").out == ""


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x0a" + b"\xff" * 10])
def test_something_that_is_no_broker_is_one_line_and_exit_2(capsys: pytest.CaptureFixture[str], answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        said = CommandLine(address, capsys).refused("topics", "list", code=2)
        thread.join()
    assert address in said


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("topics", "create"), "expected the name of one topic"),
        (("topics", "create", "a", "--topic", "b"), "expected the name of one topic"),
        (("topics", "create", "a", "--config", "retention.ms"), "expected KEY=VALUE"),
        (("topics", "delete"), "no topic given"),
        (("configs", "alter", "--entity-type", "topics", "--entity-name", "t"), "nothing to change"),
        (("configs", "alter", "--entity-type", "topics", "--add-config", "a=b"), "no entity given"),
        (
            ("configs", "describe", "--entity-type", "topics", "--entity-default"),
            "needs --entity-type brokers",
        ),
        (
            ("configs", "describe", "--entity-type", "brokers", "--entity-name", "x"),
            "expected the id of a broker",
        ),
        (("features", "upgrade"), "nothing to upgrade"),
        (("features", "downgrade"), "nothing to downgrade"),
        (("features", "upgrade", "--feature", "metadata.version"), "expected NAME=LEVEL"),
        (("features", "upgrade", "--feature", "metadata.version=x"), "expected NAME=LEVEL"),
        (("features", "upgrade", "--release-version", "4.4", "--feature", "a=1"), "give either"),
        (("features", "upgrade", "--release-version", "9.9"), "Unknown metadata.version '9.9'. Supported"),
        (("log-dirs", "describe", "--broker-list", "one"), "expected ids of brokers"),
        (("topics", "list", "--nonsense"), "--nonsense"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_2(cli: CommandLine, command: tuple[str, ...], why: str) -> None:
    assert why in cli.refused(*command, code=2)


@pytest.mark.parametrize("address", ["127.0.0.1:", "127.0.0.1:70000", ":1", "", "h:x"])
def test_an_address_that_is_none_is_named(capsys: pytest.CaptureFixture[str], address: str) -> None:
    assert "--bootstrap-server" in CommandLine(address, capsys).refused("topics", "list", code=2)


@pytest.mark.parametrize("command", [(), *((*c[:1],) for c in COMMANDS), *(c[:2] for c in COMMANDS)])
def test_help_has_an_example(capsys: pytest.CaptureFixture[str], command: tuple[str, ...]) -> None:
    assert run([*command, "--help"]) == 0
    assert "Example" in capsys.readouterr().out
