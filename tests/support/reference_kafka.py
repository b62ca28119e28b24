"""Apache Kafka 4.4.0 as a test's oracle and a benchmark's yardstick: one broker and controller in a JVM.

    require_reference_kafka()               # in a test or fixture: skips, saying why, where Kafka cannot run
    with ReferenceKafka(tmp_path / "kafka") as kafka:
        Producer({"bootstrap.servers": kafka.bootstrap_servers})
        ...
    print(dump_log(["--files", path, "--deep-iteration"]))

With `STRATALOG_REQUIRE_KAFKA=1` a machine that cannot run Kafka fails those tests instead of skipping them.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
import signal
import socket
import struct
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.support.ports import free_port
from tests.support.reference_jars import (
    BROKER_JARS,
    KAFKA_VERSION,
    SHORT_LIVED,
    TOOLS_JARS,
    JarSet,
    ReferenceUnavailableError,
    classpath,
    java,
)

__all__ = [
    "KAFKA_VERSION",
    "ReferenceKafka",
    "ReferenceUnavailableError",
    "dump_log",
    "free_port",
    "require_reference_kafka",
    "tool",
    "unavailable_reason",
]

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0

#: Internal topics of one replica and one partition, and no wait for more group members to arrive.
SINGLE_NODE_CONFIG: Mapping[str, str] = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # a killed broker may register again this soon (the default is 9 s)
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


def unavailable_reason(*more_jars: JarSet) -> str | None:
    """Why this machine cannot run the reference broker, or None when it can (its jars, and those, are then in
    place)."""
    try:
        java()
        classpath(BROKER_JARS, TOOLS_JARS, *more_jars)
    except ReferenceUnavailableError as error:
        return str(error)
    return None


def require_reference_kafka(*more_jars: JarSet) -> None:
    """Skip the calling test where Kafka cannot run; fail it there under `STRATALOG_REQUIRE_KAFKA=1`."""
    import pytest

    reason = unavailable_reason(*more_jars)
    if reason is None:
        return
    if os.environ.get("STRATALOG_REQUIRE_KAFKA") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def tool(
    class_name: str,
    args: Sequence[str],
    *,
    stdin: str | None = None,
    check: bool = True,
    jars: Sequence[JarSet] = (TOOLS_JARS,),
) -> str:
    """Run a command-line tool (`org.apache.kafka.tools...`) of Kafka 4.3.1; return its standard output.

    With `check`, an exit code other than 0 raises `RuntimeError` with both streams. `jars` in front of the tools' own
    give it classes of another version.
    """
    command = [java(), *_java_options("error"), "-cp", classpath(*jars), class_name, *args]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if check and done.returncode:
        output = done.stdout + done.stderr
        raise RuntimeError(f"{class_name} {shlex.join(args)} exited {done.returncode}: {output}")
    return done.stdout


def dump_log(args: Sequence[str], *, check: bool = True) -> str:
    """What kafka-dump-log prints for `args`."""
    return tool("org.apache.kafka.tools.DumpLogSegments", args, check=check)


def _java_options(log_level: str) -> list[str]:
    level = f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}"
    return [level, *SHORT_LIVED]


class ReferenceKafka:
    """A single-node Kafka under `directory`: `data/` (its log dir), `server.properties`, `kafka.log`.

    It may be started again after `stop` or `kill` and finds its data. `config` adds to or overrides server
    properties. `jvm_options` replaces the default: a small heap and a JVM that starts for little CPU, as tests run side
    by side. A benchmark gives its own. `format_options` go to `kafka-storage format`. Not thread-safe.
    """

    def __init__(
        self,
        directory: Path | str,
        port: int | None = None,
        config: Mapping[str, str] | None = None,
        *,
        jvm_options: Sequence[str] = ("-Xms128m", "-Xmx512m", *SHORT_LIVED),
        format_options: Sequence[str] = (),
    ) -> None:
        self.directory = Path(directory)
        self.port = port or free_port()
        self.config = dict(config or {})
        self.jvm_options = list(jvm_options)
        self.format_options = list(format_options)
        self._controller_port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    @property
    def log_path(self) -> Path:
        return self.directory / "kafka.log"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the reference broker is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def classpath(self) -> str:
        """The broker's own class path (4.4.0, with its client), for Java programs of a test."""
        return classpath(BROKER_JARS)

    def partition_dir(self, topic: str, partition: int = 0) -> Path:
        return self.data_dir / f"{topic}-{partition}"

    def prepare(self) -> Path:
        """Write the properties, format the directory when it is new; give the path of the properties."""
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._properties().items()))
        if not (self.data_dir / "meta.properties").exists():
            self._format(properties)
        return properties

    def start(self) -> ReferenceKafka:
        """Start and wait until it answers a request; prepares the directory at the first start."""
        properties = self.prepare()
        options = [*self.jvm_options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", self.classpath]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [java(), *options, "kafka.Kafka", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        atexit.register(self.kill)
        self._wait_until_serving()
        return self

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Clean shutdown: SIGTERM and wait. Harmless when it does not run."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
                raise RuntimeError(f"the reference broker did not stop in {timeout_s:.0f} s") from None
        self._forget()

    def kill(self) -> None:
        """SIGKILL, as `kill -9` does. Harmless when it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._forget()

    def dump_log(self, args: Sequence[str], *, check: bool = True) -> str:
        return dump_log(args, check=check)

    def tool(self, class_name: str, args: Sequence[str], *, stdin: str | None = None) -> str:
        """`tool`, with `--bootstrap-server` of this broker put in front."""
        return tool(class_name, ["--bootstrap-server", self.bootstrap_servers, *args], stdin=stdin)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[Path]:
        """Stop for the block, giving its data directory, and start again after it."""
        self.stop()
        yield self.data_dir
        self.start()

    def __enter__(self) -> ReferenceKafka:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    def _properties(self) -> dict[str, str]:
        broker, controller = f"127.0.0.1:{self.port}", f"127.0.0.1:{self._controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{broker}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data_dir),
            **SINGLE_NODE_CONFIG,
            **self.config,
        }

    def _format(self, properties: Path) -> None:
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "_")
        command = [java(), *_java_options("warn"), "-cp", self.classpath, "kafka.tools.StorageTool", "format"]
        done = subprocess.run(
            [*command, "-t", cluster_id, "-c", str(properties), *self.format_options],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"formatting {self.data_dir} failed: {done.stdout}{done.stderr}")

    def _wait_until_serving(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if not self.running:
                self._forget()
                raise RuntimeError(f"the reference broker ended at its start:\n{self._log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the reference broker did not serve in time:\n{self._log_tail()}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        """Does it answer ApiVersions v0? (A connection alone is accepted before requests are served.)"""
        request = struct.pack(">ihhih", 10, 18, 0, 1, -1)
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as sock:
                sock.sendall(request)
                return len(sock.recv(4)) == 4
        except OSError:
            return False

    def _log_tail(self) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-15:])

    def _forget(self) -> None:
        atexit.unregister(self.kill)
        self._process = None
