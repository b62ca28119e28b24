"""`stratalog cluster dev`: a controller and brokers in one terminal, until Ctrl-C."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated, Final, TextIO

import typer

from stratalog.cli.cluster.dev_nodes import (
    BROKERS_MAX,
    HOST,
    DevNodes,
    NodeEvent,
    NodeProcess,
    choose_ports,
)
from stratalog.cli.cluster.kafka_jars import kafka_classpath
from stratalog.cli.options import key_values
from stratalog.cli.out import counted, notice
from stratalog.errors import UsageError
from stratalog.util import REAL_FILESYSTEM

#: Timeouts of a broker's controlled shutdown, and of the controller's stop.
_STOP_S: Final = 30.0
_PORT_MAX: Final = 65_535
_READY: Final = "ready "
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def dev(
    brokers: Annotated[int, typer.Option("--brokers", metavar="N", help="Number of brokers.")] = 3,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="P",
            help="Port of the first broker; the others follow it.  [default: free ports]",
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Directory for all data; the next start continues it.  [default: temporary]"),
    ] = None,
    web: Annotated[
        str,
        typer.Option(
            help="Address of the first broker's console, or 'off'. Port 0 takes a free port.", metavar="H:P|off"
        ),
    ] = "127.0.0.1:0",
    kafka_home: Annotated[
        Path | None,
        typer.Option(
            "--kafka-home",
            metavar="DIR",
            envvar="KAFKA_HOME",
            help="An unpacked Apache Kafka 4, for the controller.  [default: downloaded once]",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set one configuration key of the brokers.", metavar="KEY=VALUE"),
    ] = None,
) -> int:
    """Run a cluster for development: one controller of Apache Kafka, and brokers.

    Each broker prints a line `ready node=N broker=HOST:PORT web=URL`. Ctrl-C stops all. A broker that exits is
    reported, and the others continue. The controller needs Java 17. All listeners are on the loopback interface.

    \b
    Examples:
      stratalog cluster dev
      stratalog cluster dev --brokers 5 --port 9092 --data-dir cluster --web 127.0.0.1:8080
    """
    from stratalog.spark.jvm import find_java  # start-up cost

    if not 1 <= brokers <= BROKERS_MAX:
        raise UsageError(f"--brokers {brokers}: expected 1 to {BROKERS_MAX}")
    if port is not None and not 0 < port <= _PORT_MAX - brokers + 1:
        raise UsageError(f"--port {port}: expected a port, with {counted(brokers, 'port')} from it on")
    settings = key_values("--set", set_)
    java = find_java("Apache Kafka").executable
    classpath = kafka_classpath(kafka_home)
    controller_port, ports = choose_ports(brokers, port)
    with _directory(data_dir) as directory:
        nodes = DevNodes(directory, controller_port, ports, web, settings)
        return Terminal(nodes).run(java, classpath)


@contextmanager
def _directory(given: Path | None) -> Iterator[Path]:
    """Yield the given directory, or a temporary one. Raises UsageError if it is in use."""
    if given is not None:
        REAL_FILESYSTEM.make_dirs(given)
        yield given.resolve()
        return
    made = tempfile.mkdtemp(prefix="stratalog-cluster-")
    try:
        yield Path(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)


class Terminal:
    """Starts the nodes, prints their output, and stops them with this process."""

    def __init__(self, nodes: DevNodes) -> None:
        self._nodes = nodes
        #: None: stop the cluster.
        self._events: SimpleQueue[NodeEvent | None] = SimpleQueue()
        self._is_ending = False
        self._controller: NodeProcess | None = None
        self._brokers: dict[str, NodeProcess] = {}
        self._ready: set[str] = set()
        self._ended: set[str] = set()

    def run(self, java: Path, classpath: str) -> int:
        """Return 0 after Ctrl-C, 1 if all brokers ended or one did not start."""
        before = {number: signal.signal(number, self._end) for number in _SIGNALS}
        try:
            cluster_id = self._nodes.prepare(java, classpath)
            with self._nodes.controller_log.open("a", encoding="utf-8") as log:
                return self._run(java, classpath, cluster_id, log)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _run(self, java: Path, classpath: str, cluster_id: str, log: TextIO) -> int:
        def keep(event: NodeEvent) -> None:
            if event.exit_code is None:
                print(event.line, file=log, flush=True)
            else:
                self._events.put(event)

        try:
            self._controller = self._nodes.start_controller(java, classpath, keep, lambda: self._is_ending)
            if not self._is_ending:
                self._start_brokers(cluster_id)
            while not self._is_ending:
                event = self._events.get()
                if event is not None and not self._is_alive_after(event):
                    return 1
            return 0
        finally:
            self._stop()

    def _start_brokers(self, cluster_id: str) -> None:
        where = f"controller={HOST}:{self._nodes.controller_port} data={self._nodes.directory}"
        print(f"cluster {cluster_id} {where}", flush=True)
        for node in self._nodes.absent_brokers():
            notice(f"broker {node} of an earlier start is not started; data that only it holds is unavailable")
        for node in range(1, len(self._nodes.ports) + 1):
            process = self._nodes.start_broker(node, self._events.put)
            self._brokers[process.name] = process

    def _end(self, *_: object) -> None:
        self._is_ending = True
        self._events.put(None)

    def _is_alive_after(self, event: NodeEvent) -> bool:
        """Print an event; return False if the cluster cannot continue."""
        if event.exit_code is None:
            self._print(event)
            return True
        if event.name == "controller":
            notice(f"the controller has ended ({_how(event.exit_code)}); see {self._nodes.controller_log}")
            return False
        if event.name not in self._ready:
            notice(f"{event.name} did not start ({_how(event.exit_code)})")
            return False
        notice(f"{event.name} has ended ({_how(event.exit_code)})")
        self._ended.add(event.name)
        return len(self._ended) < len(self._brokers)

    def _print(self, event: NodeEvent) -> None:
        if not event.line.startswith(_READY):
            print(f"{event.name}: {event.line}", file=sys.stderr, flush=True)
            return
        self._ready.add(event.name)
        print(f"ready node={event.name.split()[-1]} {event.line.removeprefix(_READY)}", flush=True)
        if len(self._ready) == len(self._brokers):
            print(f"{counted(len(self._brokers), 'broker')}: -b {self._nodes.bootstrap}; Ctrl-C stops them", flush=True)

    def _stop(self) -> None:
        """Stop the brokers, then the controller, which their shutdown needs. A second Ctrl-C kills."""
        processes = [*self._brokers.values()] + ([] if self._controller is None else [self._controller])

        def kill_all(*_: object) -> None:
            for each in processes:
                each.kill()

        for number in _SIGNALS:
            signal.signal(number, kill_all)
        for each in self._brokers.values():
            each.ask_to_stop()
        for each in self._brokers.values():
            each.end(_STOP_S)
        if self._controller is not None:
            self._controller.ask_to_stop()
            self._controller.end(_STOP_S)


def _how(exit_code: int) -> str:
    return f"killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exit code {exit_code}"
