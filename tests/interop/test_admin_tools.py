"""Kafka's administrative tools on our broker, and ours on Kafka's: the same clusters, the same words."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import stratalog
from tests.cli.admin_commands import CommandLine
from tests.support.reference_jars import BROKER_JARS, CONFIGS_JARS, TOOLS_JARS
from tests.support.reference_kafka import ReferenceKafka, require_reference_kafka, tool

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module", autouse=True)
def _kafka_tools() -> None:
    require_reference_kafka(CONFIGS_JARS)


class JavaTools:
    """Kafka's tools on one broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._to = ("--bootstrap-server", bootstrap_servers)

    def features(self, *args: str) -> list[str]:
        """kafka-features, with the levels that 4.4.0 knows; whatever its exit code."""
        jars = (BROKER_JARS, TOOLS_JARS)
        name = "org.apache.kafka.tools.FeatureCommand"
        return tool(name, [*self._to, *args], check=False, jars=jars).splitlines()

    def configs(self, *args: str) -> list[str]:
        jars = (CONFIGS_JARS, TOOLS_JARS, BROKER_JARS)
        return tool("kafka.admin.ConfigCommand", [*self._to, *args], jars=jars).splitlines()

    def topics(self, *args: str) -> list[str]:
        return tool("org.apache.kafka.tools.TopicCommand", [*self._to, *args], check=False).splitlines()

    def cluster(self, name: str, *args: str) -> list[str]:
        """A tool that asks about the cluster."""
        return tool(f"org.apache.kafka.tools.{name}", [*self._to, *args], check=False).splitlines()

    def log_dirs(self, *args: str) -> list[str]:
        return tool("org.apache.kafka.tools.LogDirsCommand", [*self._to, "--describe", *args]).splitlines()


@pytest.fixture(params=["ours", "kafka"])
def tools(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[tuple[JavaTools, CommandLine]]:
    """Theirs and ours, on one broker: once of ours, once of Kafka's, at level 31."""
    if request.param == "ours":
        with stratalog.Broker(data_dir=tmp_path / "ours") as broker:
            yield JavaTools(broker.bootstrap_servers), CommandLine(broker.bootstrap_servers, capsys)
    else:
        level = ["--feature", "metadata.version=31"]
        with ReferenceKafka(tmp_path / "kafka", format_options=level) as kafka:
            yield JavaTools(kafka.bootstrap_servers), CommandLine(kafka.bootstrap_servers, capsys)


def settled(cli: CommandLine, *args: str, until: Callable[[str], bool]) -> list[str]:
    """What a command of ours prints once it shows a change: Kafka's controller tells its brokers a moment later."""
    deadline = time.monotonic() + 60
    while not until(out := cli.good(*args).out):
        assert time.monotonic() < deadline, out
        time.sleep(0.05)
    return out.splitlines()


def without_epoch(lines: list[str]) -> list[str]:
    """Kafka's epoch goes on by itself."""
    return [line.split("Epoch: ")[0] for line in lines]


def in_order(described: list[str]) -> set[str]:
    """What kafka-topics prints in no particular order; without eligible leader replicas, which ours does not tell."""
    found = set()
    for line in described:
        head, separator, configs = line.split("\tElr: ")[0].partition("\tConfigs: ")
        found.add(head.rstrip() + separator + ",".join(sorted(configs.split(","))))
    return found


def test_topics_are_made_grown_described_and_deleted_by_either(tools: tuple[JavaTools, CommandLine]) -> None:
    java, cli = tools
    assert java.topics("--create", "--topic", "theirs", "--partitions", "2", "--config", "retention.ms=7") == [
        "Created topic theirs."
    ]
    assert cli.good("topics", "create", "ours", "--config", "flush.ms=7").out == "Created topic ours.\n"
    assert settled(cli, "topics", "list", until=lambda out: "ours" in out) == ["ours", "theirs"]
    assert java.topics("--list") == ["ours", "theirs"]
    java.topics("--alter", "--topic", "ours", "--partitions", "3")
    cli.good("topics", "alter", "theirs", "--partitions", "4")
    described = in_order(settled(cli, "topics", "describe", until=lambda out: "Partition: 3" in out))
    assert in_order(java.topics("--describe")) == described
    assert len(described) == 2 + 3 + 4
    java.topics("--delete", "--topic", "ours")
    cli.good("topics", "delete", "theirs")
    assert settled(cli, "topics", "list", until=lambda out: "theirs" not in out) == []
    said = "".join(java.topics("--describe", "--topic", "ours"))
    assert "Topic 'ours' does not exist" in said
    assert cli.refused("topics", "describe", "ours") == "Topic 'ours' does not exist"


def test_configs_are_changed_by_either_and_shown_alike_by_both(tools: tuple[JavaTools, CommandLine]) -> None:
    java, cli = tools
    cli.good("topics", "create", "t")
    topic = ("--entity-type", "topics", "--entity-name", "t")
    every = ("--entity-type", "brokers", "--entity-default")
    assert java.configs("--alter", *topic, "--add-config", "cleanup.policy=[compact,delete],flush.ms=7") == [
        "Completed updating config for topic t."
    ]
    done = cli.good("configs", "alter", *topic, "--add-config", "segment.bytes=2000000").out
    assert done == "Completed updating config for topic t.\n"
    shown = settled(cli, "configs", "describe", *topic, until=lambda out: "segment.bytes=2000000" in out)
    assert java.configs("--describe", *topic) == shown
    assert [line.split("=")[0].strip() for line in shown[1:]] == [
        "cleanup.policy",
        "flush.ms",
        "segment.bytes",
    ]
    assert java.configs("--describe", *topic, "--all") == (
        cli.good("configs", "describe", *topic, "--all").out.splitlines()
    )
    java.configs("--alter", *every, "--add-config", "log.cleaner.threads=2")
    cli.good("configs", "alter", *every, "--add-config", "log.retention.ms=86400000")
    shown = settled(cli, "configs", "describe", *every, until=lambda out: "log.retention.ms" in out)
    assert java.configs("--describe", *every) == shown
    java.configs("--alter", *topic, "--delete-config", "segment.bytes,cleanup.policy")
    cli.good("configs", "alter", *topic, "--delete-config", "flush.ms")
    shown = settled(cli, "configs", "describe", *topic, until=lambda out: "flush.ms" not in out)
    assert java.configs("--describe", *topic) == shown == ["Dynamic configs for topic t are:"]
    why = "Invalid value 5 for configuration segment.bytes: Value must be at least 1048576"
    with pytest.raises(RuntimeError, match=why):
        java.configs("--alter", *topic, "--add-config", "segment.bytes=5")
    assert why in cli.refused("configs", "alter", *topic, "--add-config", "segment.bytes=5")


def test_log_directories_are_reported_alike(tools: tuple[JavaTools, CommandLine]) -> None:
    java, cli = tools
    cli.good("topics", "create", "a", "--partitions", "2")
    cli.good("topics", "create", "b")
    settled(cli, "log-dirs", "describe", until=lambda out: all(name in out for name in ("a-0", "a-1", "b-0")))
    for options in ((), ("--topic-list", "a", "--broker-list", "1")):
        theirs = java.log_dirs(*options)
        ours = cli.good("log-dirs", "describe", *options).out.splitlines()
        assert ours[:2] == theirs[:2]
        found = []
        for text in (theirs[2], ours[2]):
            value = json.loads(text)
            for directory in value["brokers"][0]["logDirs"]:
                directory["partitions"].sort(key=lambda part: part["partition"])
            found.append(value)
        assert found[0] == found[1]


def test_the_quorum_elections_and_reassignments_of_one_node_are_reported_alike(
    tools: tuple[JavaTools, CommandLine], tmp_path: Path
) -> None:
    java, cli = tools
    cli.good("topics", "create", "t", "--partitions", "2")
    settled(cli, "topics", "describe", "t", until=lambda out: "Leader: none" not in out)
    plan = tmp_path / "plan.json"
    moves = [{"topic": "t", "partition": 0, "replicas": [1]}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    status = dict(line.split(":", 1) for line in java.cluster("MetadataQuorumCommand", "describe", "--status") if line)
    assert status["LeaderId"].split() == ["1"]
    assert status["MaxFollowerLag"].split() == ["0"]
    assert status["CurrentObservers"].split() == ["[]"]
    (_, voter, *_) = java.cluster("MetadataQuorumCommand", "describe", "--replication")
    assert (voter.split()[0], voter.split()[-1]) == ("1", "Leader")
    election = ("LeaderElectionCommand", "--election-type=unclean", "--topic", "t", "--partition", "1")
    assert "Valid replica already elected for partitions t-1" in java.cluster(*election)
    assert java.cluster("LeaderElectionCommand", "--election-type=preferred", "--all-topic-partitions") == []
    reassign = "reassign.ReassignPartitionsCommand"
    assert java.cluster(reassign, "--list") == ["No partition reassignments found."]
    plan_file = f"--reassignment-json-file={plan}"
    assert "Successfully started partition reassignment for t-0" in java.cluster(reassign, "--execute", plan_file)
    assert "Reassignment of partition t-0 is completed." in java.cluster(reassign, "--verify", plan_file)


def test_features_go_up_and_down_by_either(tools: tuple[JavaTools, CommandLine]) -> None:
    java, cli = tools

    def check(level: str) -> None:
        """Both tools have to say the same of all features, and that this level is finalized."""
        end = f"FinalizedVersionLevel: {level}"
        lines = without_epoch(settled(cli, "features", "describe", until=lambda out: end in out))
        assert without_epoch(java.features("describe")) == lines

    check("4.4-IV0")
    assert java.features("downgrade", "--feature", "metadata.version=30") == ["metadata.version was downgraded to 30."]
    up = cli.good("features", "upgrade", "--feature", "metadata.version=31").out
    assert up == "metadata.version was upgraded to 31.\n"
    assert java.features("upgrade", "--feature", "metadata.version=32", "--dry-run") == [
        "metadata.version can be upgraded to 32."
    ]
    assert java.features("upgrade", "--metadata", "4.4-IV1")[-1] == "metadata.version was upgraded to 32."
    why = "Unsupported metadata.version downgrade from 32 to 31. Refusing to perform the requested downgrade"
    assert why in java.features("downgrade", "--feature", "metadata.version=31")[0]
    assert why in cli.refused("features", "downgrade", "--feature", "metadata.version=31")
    assert "metadata.version was upgraded to 33." in cli.good("features", "upgrade", "--release-version", "4.4").out
    check("4.4-IV2")


def test_their_upgrade_to_a_release_switches_large_segments_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """kafka-features --release-version sends every feature of the release, all or nothing."""
    with stratalog.Broker(data_dir=tmp_path) as broker:
        said = JavaTools(broker.bootstrap_servers).features("upgrade", "--release-version", "4.4")
        assert "metadata.version was upgraded to 33." in said
        assert "transaction.version was upgraded to 2." in said
        assert broker.services.metadata.metadata_version == 33
        cli = CommandLine(broker.bootstrap_servers, capsys)
        cli.good("topics", "create", "large", "--config", "segment.bytes=4294967296")


def test_kafkas_tool_reads_log_directories_with_remote_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"remote.log.storage.system.enable": "true", "remote.log.metadata.topic.num.partitions": "1"}
    with stratalog.Broker(data_dir=tmp_path, config=config) as broker:
        cli = CommandLine(broker.bootstrap_servers, capsys)
        cli.good("topics", "create", "tiered", "--config", "remote.storage.enable=true")
        value = json.loads(JavaTools(broker.bootstrap_servers).log_dirs("--topic-list", "tiered")[2])
        (part,) = value["brokers"][0]["logDirs"][0]["partitions"]
        assert (part["partition"], part["size"]) == ("tiered-0", 0)
        ours = cli.good("log-dirs", "describe", "--topic-list", "tiered", "--json").json
        assert ours["brokers"][0]["logDirs"][0]["partitions"] == [{**part, "remoteSize": 0}]
