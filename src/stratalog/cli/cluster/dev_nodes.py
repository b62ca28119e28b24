"""The nodes of a development cluster: directories, settings and processes."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stratalog.engine.dirs import format_dir, is_served, stored_cluster_id, stored_node_id
from stratalog.errors import UsageError
from stratalog.util import REAL_FILESYSTEM, random_uuid, uuid_to_base64, write_atomic

HOST: Final = "127.0.0.1"
CONTROLLER: Final = 100
"""The node id of the controller; brokers have 1, 2, .."""
BROKERS_MAX: Final = 20
#: Small: the controller of a few brokers stores little.
_JVM: Final = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
#: Features of a new cluster that brokers of this release may not support.
_FEATURES: Final = ("group.version", "share.version", "streams.version")
_START_S: Final = 120.0
_CHECK_S: Final = 0.05
_REPLICAS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A line of output of a node, or the end of its process with an exit code."""

    name: str
    line: str = ""
    exit_code: int | None = None


Listen = Callable[[NodeEvent], None]


class NodeProcess:
    """A child process in its own session, so that the terminal's Ctrl-C reaches only this process.

    `listen` is called on a thread with each line of output, and at the end.
    """

    def __init__(self, name: str, command: Sequence[str], listen: Listen) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._listen = listen
        self._reader = threading.Thread(target=self._read, name=f"output of {name}", daemon=True)
        self._reader.start()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def ask_to_stop(self) -> None:
        if not self.has_ended:
            self._process.send_signal(signal.SIGTERM)

    def end(self, patience_s: float) -> None:
        """Wait for the end; kill the process after the timeout."""
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join(patience_s)

    def kill(self) -> None:
        if not self.has_ended:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._listen(NodeEvent(self.name, line.rstrip("\n")))
        self._listen(NodeEvent(self.name, exit_code=self._process.wait()))


@dataclass(frozen=True, slots=True)
class DevNodes:
    """A cluster in `directory`: one controller, and a broker on each of these loopback ports."""

    directory: Path
    controller_port: int
    ports: tuple[int, ...]
    web: str
    settings: Mapping[str, str]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    def prepare(self, java: Path, classpath: str) -> str:
        """Format new directories, write the settings, and return the cluster's id.

        Raises DataDirError for directories of another cluster, UsageError if the controller's cannot be formatted.
        """
        names = self._names
        served = next((self._data(name) for name in names if is_served(self._data(name))), None)
        if served is not None:
            raise UsageError(f"{served} is in use by another process: part of this cluster is already running")
        cluster_id = self._cluster_id()
        REAL_FILESYSTEM.make_dirs(self._home("controller"))
        self._write("controller", self._of_controller())
        if stored_cluster_id(self._data("controller")) is None:
            self._format_controller(java, classpath, cluster_id)
        for node in range(1, len(self.ports) + 1):
            name = f"broker-{node}"
            REAL_FILESYSTEM.make_dirs(self._home(name))
            self._write(name, self._of_broker(node))
            format_dir(self._data(name), cluster_id=cluster_id, node_id=node)
        return cluster_id

    def start_controller(
        self, java: Path, classpath: str, listen: Listen, is_ending: Callable[[], bool]
    ) -> NodeProcess:
        """Start the controller and wait until it is reachable, or until the cluster is to stop.

        Raises UsageError if it ends.
        """
        log = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        file = str(self._file("controller"))
        process = NodeProcess("controller", [str(java), *_JVM, log, "-cp", classpath, "kafka.Kafka", file], listen)
        deadline = time.monotonic() + _START_S
        while not _listens(self.controller_port) and not is_ending():
            if process.has_ended or time.monotonic() > deadline:
                process.kill()
                process.end(_START_S)
                raise UsageError(f"the controller did not start; see {self.controller_log}")
            time.sleep(_CHECK_S)
        return process

    @property
    def controller_log(self) -> Path:
        return self._home("controller") / "controller.log"

    def start_broker(self, node: int, listen: Listen) -> NodeProcess:
        name = f"broker-{node}"
        command = [sys.executable, "-m", "stratalog", "serve", "--config", str(self._file(name))]
        if node == 1:
            command += ["--web", self.web]
        return NodeProcess(f"broker {node}", command, listen)

    def absent_brokers(self) -> list[int]:
        """Return brokers of an earlier start of this cluster that this one lacks."""
        known = {stored_node_id(path / "data") for path in self.directory.glob("broker-*")}
        return sorted(node for node in known if node is not None and node > len(self.ports))

    @property
    def _names(self) -> list[str]:
        return ["controller", *(f"broker-{node}" for node in range(1, len(self.ports) + 1))]

    def _cluster_id(self) -> str:
        """Return the id on disk, or a new one."""
        known = (stored_cluster_id(self._data(name)) for name in self._names)
        return next((each for each in known if each is not None), None) or uuid_to_base64(random_uuid())

    def _format_controller(self, java: Path, classpath: str, cluster_id: str) -> None:
        from stratalog.broker.cluster import SUPPORTED_FEATURES  # start-up cost

        lowered = [f"{name}=0" for name in _FEATURES if name not in SUPPORTED_FEATURES]
        features = [option for each in lowered for option in ("--feature", each)]
        log = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        command = [str(java), *_JVM, log, "-cp", classpath, "kafka.tools.StorageTool", "format"]
        command += ["-t", cluster_id, "-c", str(self._file("controller")), *features]
        # Ctrl-C is for this process: it stops the cluster once the directory is complete.
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, start_new_session=True
        )
        if done.returncode:
            said = (done.stderr + done.stdout).strip().splitlines()
            why = said[0] if said else "no reason given"
            raise UsageError(f"the directory of the controller cannot be formatted by {java}: {why}")

    def _of_both(self) -> dict[str, str]:
        replicas = str(min(_REPLICAS_MAX, len(self.ports)))
        return {
            "controller.quorum.voters": f"{CONTROLLER}@{HOST}:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "offsets.topic.num.partitions": "8",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.num.partitions": "8",
            "transaction.state.log.min.isr": str(min(2, len(self.ports))),
            "group.initial.rebalance.delay.ms": "0",
        }

    def _of_controller(self) -> dict[str, str]:
        return self._of_both() | {
            "process.roles": "controller",
            "node.id": str(CONTROLLER),
            "listeners": f"CONTROLLER://{HOST}:{self.controller_port}",
            "log.dirs": str(self._data("controller")),
        }

    def _of_broker(self, node: int) -> dict[str, str]:
        return {
            **self._of_both(),
            **self.settings,
            "process.roles": "broker",
            "node.id": str(node),
            "listeners": f"PLAINTEXT://{HOST}:{self.ports[node - 1]}",
            "log.dirs": str(self._data(f"broker-{node}")),
        }

    def _home(self, name: str) -> Path:
        return self.directory / name

    def _data(self, name: str) -> Path:
        return self._home(name) / "data"

    def _file(self, name: str) -> Path:
        return self._home(name) / "server.properties"

    def _write(self, name: str, properties: Mapping[str, str]) -> None:
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        write_atomic(self._file(name), text.encode(), REAL_FILESYSTEM)


def choose_ports(brokers: int, first: int | None) -> tuple[int, tuple[int, ...]]:
    """Return a port for the controller and one for each broker: free ones, or `first` and the following.

    Raises UsageError for a port that is in use.
    """
    with contextlib.ExitStack() as held:
        asked = [0] * brokers if first is None else list(range(first, first + brokers))
        taken = [_hold(held, port) for port in [*asked, 0]]
    return taken[-1], tuple(taken[:-1])


def _hold(held: contextlib.ExitStack, port: int) -> int:
    sock = held.enter_context(socket.socket())
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((HOST, port))
    except OSError as error:
        raise UsageError(f"port {port} is not available ({error.strerror}); choose another --port") from error
    return int(sock.getsockname()[1])


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False
