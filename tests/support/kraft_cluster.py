"""A KRaft cluster of Apache Kafka 4.4.0 on loopback: controllers and brokers, each a JVM with a small heap.

    with KraftCluster(tmp_path) as cluster:       # one controller, standalone
        cluster.start_broker(1)
        cluster.controllers[100].kill()

Ports are below the range that the system hands out, so that nothing takes one between two starts.
"""

from __future__ import annotations

import atexit
import contextlib
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from stratalog.util import random_uuid, uuid_to_base64
from tests.support.reference_jars import BROKER_JARS, classpath, java

JVM_OPTIONS = ("-Xms192m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
BROKER_CONFIG: Mapping[str, str] = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "num.io.threads": "4",
    "num.network.threads": "2",
}


def low_port() -> int:
    """Return a port of this machine between 20,000 and 32,000 that was free a moment ago."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port


@dataclass(frozen=True)
class Place:
    """Where a node runs: its address, and what begins its command."""

    host: str = "127.0.0.1"
    prefix: Sequence[str] = ()


THIS_MACHINE = Place()


class KafkaProcess:
    """One node: `directory/data`, `server.properties`, `kafka.log`."""

    def __init__(self, directory: Path, properties: Mapping[str, str], port: int, place: Place = THIS_MACHINE) -> None:
        self.directory = directory
        self.port = port
        self.place = place
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self.config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    @property
    def config(self) -> Path:
        return self.directory / "server.properties"

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    @property
    def address(self) -> str:
        return f"{self.place.host}:{self.port}"

    def format(self, cluster_id: str, *options: str) -> None:
        command = [
            java(),
            *JVM_OPTIONS,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            "-cp",
            classpath(BROKER_JARS),
        ]
        command += ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self.config), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"formatting {self.data_dir} failed: {done.stdout}{done.stderr}")

    def start(self) -> KafkaProcess:
        level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        command = [*self.place.prefix, java(), *JVM_OPTIONS, level, "-cp", classpath(BROKER_JARS)]
        with (self.directory / "kafka.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "kafka.Kafka", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        atexit.register(self.kill)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join((self.directory / "kafka.log").read_text(errors="replace").splitlines()[-15:])
                self.kill()
                raise RuntimeError(f"the node at {self.address} does not serve:\n{tail}")
            time.sleep(0.05)
        return self

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.place.host, self.port), timeout=1):
            return True
        return False


class KraftCluster:
    """Controllers 100, 101, ..; brokers are added. `features` (NAME=LEVEL) are finalized in place of Kafka's levels."""

    def __init__(
        self,
        directory: Path,
        *,
        controllers: int = 1,
        features: Sequence[str] = (),
        config: Mapping[str, str] | None = None,
        listeners: Sequence[str] = ("PLAINTEXT",),
        format_options: Sequence[str] = (),
        place: Callable[[int], Place] = lambda _node: THIS_MACHINE,
    ) -> None:
        """`listeners` are those of each broker, clients use the first; `format_options` are for the controllers.

        `place` says where each node is to run.
        """
        self.directory = directory
        self.place = place
        self._listeners = listeners
        self.cluster_id = uuid_to_base64(random_uuid())
        self.brokers: dict[int, KafkaProcess] = {}
        self.controllers: dict[int, KafkaProcess] = {}
        ports = {100 + n: low_port() for n in range(controllers)}
        self.bootstrap_controllers = ",".join(f"{place(node).host}:{port}" for node, port in ports.items())
        voters = {node: uuid_to_base64(random_uuid()) for node in ports}
        initial = ",".join(f"{node}@{place(node).host}:{port}:{voters[node]}" for node, port in ports.items())
        for node, port in ports.items():
            controller = KafkaProcess(
                directory / f"controller-{node}",
                {
                    "process.roles": "controller",
                    "node.id": str(node),
                    "controller.quorum.bootstrap.servers": self.bootstrap_controllers,
                    "listeners": f"CONTROLLER://{place(node).host}:{port}",
                    "advertised.listeners": f"CONTROLLER://{place(node).host}:{port}",
                    "controller.listener.names": "CONTROLLER",
                    "log.dirs": str(directory / f"controller-{node}" / "data"),
                    **(config or {}),
                },
                port,
                place(node),
            )
            options = [option for each in features for option in ("--feature", each)]
            controller.format(self.cluster_id, "--initial-controllers", initial, *options, *format_options)
            self.controllers[node] = controller

    def broker_properties(self, node: int, port: int, data_dir: Path) -> dict[str, str]:
        """Return the settings that a broker of this cluster has, whichever way it was made."""
        return {
            "process.roles": "broker",
            "node.id": str(node),
            "controller.quorum.bootstrap.servers": self.bootstrap_controllers,
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(
                f"{name}://{self.place(node).host}:{low_port() if at else port}"
                for at, name in enumerate(self._listeners)
            ),
            "log.dirs": str(data_dir),
        }

    def start_broker(self, node: int, config: Mapping[str, str] | None = None) -> KafkaProcess:
        port, directory = low_port(), self.directory / f"broker-{node}"
        properties = self.broker_properties(node, port, directory / "data")
        broker = KafkaProcess(directory, {**properties, **BROKER_CONFIG, **(config or {})}, port, self.place(node))
        broker.format(self.cluster_id, "--no-initial-controllers")
        self.brokers[node] = broker
        return broker.start()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(each.address for each in self.brokers.values())

    def __enter__(self) -> KraftCluster:
        for each in self.controllers.values():
            each.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in [*self.brokers.values(), *self.controllers.values()]:
            each.kill()
