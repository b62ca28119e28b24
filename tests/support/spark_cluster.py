"""Spark's own standalone cluster on the loopback: a master and workers, from the pyspark that is installed.

    with SparkCluster(directory, workers=2) as cluster:
        spark = SparkSession.builder.master(cluster.url)...

Processes are stopped by their ids; what they print stands in `directory`. Ports are free ones.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import pyspark

from stratalog.spark.jvm.java import spark_java_home

_MASTER_CLASS = "org.apache.spark.deploy.master.Master"
_WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"
_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_START_SECONDS = 120


class SparkCluster:
    """`url` once it is entered.

    `environment` is added to what workers, and so executors, get; no PYTHON* is passed on.
    """

    def __init__(
        self,
        directory: Path,
        *,
        workers: int = 1,
        cores: int = 1,
        memory: str = "1g",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.url = ""
        #: Of the workers, to be killed by tests.
        self.workers: list[subprocess.Popen[bytes]] = []
        self._count = workers
        self._cores = cores
        self._memory = memory
        self._environment = dict(environment or {})
        self._master: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> SparkCluster:
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            self._master = self._start("master", _MASTER_CLASS, "--port", "0")
            self.url = self._wait_for(self._master, "master", _URL)[1]
            for number in range(self._count):
                self.start_worker(number)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start_worker(self, number: int) -> subprocess.Popen[bytes]:
        """Another worker; returns when the master knows it."""
        name = f"worker-{number}"
        limits = ["--cores", str(self._cores), "--memory", self._memory]
        place = ["--work-dir", str(self.directory / name)]
        worker = self._start(name, _WORKER_CLASS, *limits, *place, self.url)
        self.workers.append(worker)
        self._wait_for(worker, name, re.compile("Successfully registered with master"))
        return worker

    def stop(self) -> None:
        """Workers first: they end their executors."""
        for process in [*self.workers, self._master]:
            if process is not None and process.poll() is None:
                process.terminate()
        for process in [*self.workers, self._master]:
            if process is not None:
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    process.wait()

    def executor_logs(self) -> str:
        """What executors wrote to stderr, for messages of tests."""
        return "\n".join(path.read_text(errors="replace") for path in self.directory.glob("worker-*/*/*/stderr"))

    def _start(self, name: str, class_name: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = Path(pyspark.__file__).parent
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK"))}
        environment |= {
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(spark_java_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",  # it would want a port of its own
            **self._environment,
        }
        command = [str(home / "bin" / "spark-class"), class_name, "--host", "127.0.0.1", "--webui-port", "0"]
        with (self.directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [*command, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait_for(self, process: subprocess.Popen[bytes], name: str, wanted: re.Pattern[str]) -> re.Match[str]:
        deadline = time.monotonic() + _START_SECONDS
        log = self.directory / f"{name}.log"
        while time.monotonic() < deadline:
            text = log.read_text(errors="replace")
            if found := wanted.search(text):
                return found
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended with {process.returncode}: {text[-2000:]}")
            time.sleep(0.1)
        raise RuntimeError(f"{name} did not start in {_START_SECONDS} s: {log.read_text(errors='replace')[-2000:]}")
