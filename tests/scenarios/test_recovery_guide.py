"""The commands of the guide "Recover from a bucket", taken from its text and carried out as an operator would."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stratalog.broker.server.server import Broker
from stratalog.cli.main import run
from stratalog.remote.storage.object_store import ObjectStore
from tests.support.tiered_broker import (
    eventually,
    fill,
    partition_of,
    tiered_and_copied,
    tiering_broker,
    values,
)

GUIDE = (Path(__file__).parents[2] / "docs" / "how-to" / "recover_from_a_bucket.md").read_text()
#: Of the examples: a command on one line or more, without its prompt.
EXAMPLES = [
    re.sub(r"\\\n\s*", "", found) for found in re.findall(r"^ {4}\$ (stratalog (?:.*\\\n)*.*)$", GUIDE, re.MULTILINE)
]


def row(happened: str) -> str:
    """What to do, in the table of cases."""
    (found,) = [line for line in GUIDE.splitlines() if line.startswith(f"| {happened} |")]
    return found.split("|")[2]


class Operator:
    """Carries out commands on a bucket and directories of the test."""

    def __init__(self, directory: Path) -> None:
        self.url = (directory / "bucket").as_uri()
        self.directory = directory
        self.production = directory / "production"

    def arguments(self, command: str, **places: Path) -> list[str]:
        named = {"s3://bucket/tiered": self.url, "URL": self.url}
        named |= {name: str(place) for name, place in places.items()}
        named["/var/lib/stratalog"] = str(places.get("DIR", self.production))
        name, *words = shlex.split(command)
        assert name == "stratalog"
        return [re.sub(r"s3://bucket/tiered$", self.url, named.get(word, word)) for word in words]

    def do(self, command: str, expected: int = 0, **places: Path) -> None:
        assert run(self.arguments(command, **places)) == expected, command

    def do_row(self, happened: str, **places: Path) -> None:
        """Carry out the command of a row of the table."""
        command = re.findall(r"`(stratalog [^`]*)`", row(happened))[0]
        self.do(command, 0, **places)


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


@pytest.fixture
def production(operator: Operator) -> None:
    """The directory of a broker that has stopped: three records in the bucket, the last of them local too."""
    with tiering_broker(operator.production, operator.url) as broker:
        tiered_and_copied(broker)


def test_a_cluster_whose_disk_is_lost(operator: Operator, production: None, capsys: pytest.CaptureFixture[str]) -> None:
    """The example, to its end; a manifest is lost too."""
    dry_run, serve, metadata_only, owner = EXAMPLES
    shutil.rmtree(operator.production)
    store = ObjectStore.from_url(operator.url)
    manifests = sorted(info.key for info in store.list() if info.key.endswith(".manifest.json"))
    store.delete([manifests[1]])
    capsys.readouterr()
    operator.do(dry_run, 1)
    said = capsys.readouterr().out
    assert "left: its copy was not finished (there is no manifest)" in said
    assert "would be restored; 1 segment left out, 1 problem" in said
    operator.do(dry_run.replace(" --dry-run", ""), 1)
    command = operator.arguments(serve)
    process = subprocess.Popen(
        [sys.executable, "-m", "stratalog", *command, "--listen", "127.0.0.1:0", "--web", "off"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        ready = process.stdout.readline()
        address = re.match(r"ready broker=(\S+)", ready)
        assert address is not None, ready
        assert run(["tier", "status", "--bootstrap-server", address[1]]) == 0
        capsys.readouterr()

        def has_started() -> bool:
            assert run(operator.arguments(owner)) == 0
            return "\tstarted\t" in capsys.readouterr().out.splitlines()[-1]

        eventually(has_started)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()
    # The metadata is lost as well.
    for directory in operator.production.glob("__remote_log_metadata-*"):
        shutil.rmtree(directory)
    operator.do(metadata_only, 1)  # the segment without its manifest is missing still
    with tiering_broker(operator.production, operator.url) as broker:
        _goes_on(broker)


def test_a_copy_beside_production_that_becomes_production(operator: Operator, production: None, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    operator.do_row("You want to test a restore next to production", COPY=copy)
    before = sorted(info.key for info in ObjectStore.from_url(operator.url).list())
    with tiering_broker(copy, operator.url) as broker:
        assert values(partition_of(broker)) == [b"0", b"1", b"2"]
    assert sorted(info.key for info in ObjectStore.from_url(operator.url).list()) == before
    operator.do_row("The test copy must become production", COPY=copy)
    with tiering_broker(copy, operator.url) as broker:
        _goes_on(broker)


def test_a_disk_of_which_a_snapshot_was_put_back(operator: Operator, production: None, tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    shutil.copytree(operator.production, snapshot)
    with tiering_broker(operator.production, operator.url) as broker:
        _goes_on(broker)
    shutil.rmtree(operator.production)
    snapshot.rename(operator.production)
    with tiering_broker(operator.production, operator.url) as broker:
        remote = broker.services.logs.remote
        assert remote is not None
        fill(partition_of(broker), 1)
        eventually(lambda: any("is an old copy" in each.message for each in remote.health.failures.values()))
    operator.do_row("A snapshot of the disk was put back", DIR=operator.production)
    with tiering_broker(operator.production, operator.url) as broker:
        _goes_on(broker)


def test_metadata_that_is_lost(operator: Operator, production: None) -> None:
    for directory in operator.production.glob("__remote_log_metadata-*"):
        shutil.rmtree(directory)
    operator.do_row("`__remote_log_metadata` is lost or damaged", DIR=operator.production)
    with tiering_broker(operator.production, operator.url) as broker:
        assert values(partition_of(broker)) == [b"0", b"1", b"2"]
        _goes_on(broker)


def test_a_damaged_owner_and_a_cluster_that_is_gone(
    operator: Operator, production: None, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ObjectStore.from_url(operator.url)
    newest = max(info.key for info in store.list("_owner/"))
    store.put(newest, b"{")
    operator.do_row("`_owner` is damaged", DIR=operator.production)
    with tiering_broker(operator.production, operator.url) as broker:
        _goes_on(broker)
    operator.do_row("The cluster is gone and its topics are an archive")
    capsys.readouterr()
    operator.do("stratalog tier owner URL")
    assert "given up" in capsys.readouterr().out.splitlines()[-1]


def _goes_on(broker: Broker) -> None:
    """The broker copies what comes now."""
    partition = partition_of(broker)
    end = partition.log.log_end_offset
    fill(partition, 2)
    eventually(lambda: partition.log.highest_offset_in_remote_storage == end + 1)
