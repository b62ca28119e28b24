"""The Spark session of a command, and the options that say which."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol
from urllib.parse import urlsplit

import typer

from stratalog.cli.option_groups import OptionGroup
from stratalog.cli.options import key_values
from stratalog.cli.streams import discard_stderr
from stratalog.errors import UsageError
from stratalog.jobs import Report, terminal_progress
from stratalog.util import end_descendants

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stratalog.spark import SparkExecutor

_LOCAL = "local[*]"

#: Of Spark Connect, where a URL names none.
_CONNECT_PORT = 15002
_LISTENER_SECONDS = 10
#: Seconds for a JVM to remove its temporary files when it is interrupted.
_END_SECONDS = 5.0

Master = Annotated[
    str | None,
    typer.Option(
        "--master", metavar="MASTER", help="Spark's master, such as spark://host:7077 or yarn. Default: local[*]."
    ),
]
RemoteSession = Annotated[
    str | None,
    typer.Option(
        "--remote-session",
        metavar="URL",
        help="A Spark Connect server, such as sc://host:15002. Default: SPARK_REMOTE.",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A property of the Spark session."),
]


class JobResult(Protocol):
    """The result of a job: a report, and the problems that it found."""

    @property
    def problems(self) -> Any: ...

    def report(self) -> Report: ...


def print_result(result: JobResult, *, as_json: bool) -> int:
    """Print the report of a job. Return the exit code, which is 1 if there are problems."""
    result.report().print(as_json=as_json)
    return 1 if result.problems else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions(OptionGroup):
    """Which Spark session a command uses."""

    master: Master = None
    remote_session: RemoteSession = None
    conf: Conf = None

    @property
    def remote_url(self) -> str | None:
        """The server of Spark Connect that the options, or SPARK_REMOTE, ask for."""
        return self.remote_session or (os.environ.get("SPARK_REMOTE") or None if self.master is None else None)

    @contextmanager
    def executor(self, name: str) -> Iterator[SparkExecutor]:
        """Open a session as `open` does, for jobs to run on its executors."""
        from stratalog.spark import SparkExecutor  # --help does without

        with self.open(name) as spark:
            yield SparkExecutor(spark)

    @contextmanager
    def open(self, name: str) -> Iterator[SparkSession]:
        """Open a session and stop it in the end, or use the one of this process and leave it running.

        Raises UsageError, in one line, without Spark, Java, or a server at the address.
        """
        properties = key_values("--conf", self.conf)
        if self.remote_session is not None and self.master is not None:
            raise UsageError("give either --master or --remote-session")
        with _session(name, self.master or _LOCAL, self.remote_url, properties) as spark:
            yield spark


@contextmanager
def _session(name: str, master: str, remote: str | None, properties: dict[str, str]) -> Iterator[SparkSession]:
    try:
        from pyspark.sql import SparkSession  # an extra
    except ImportError as error:
        raise UsageError("Spark is not installed: `pip install stratalog[spark]`") from error
    from stratalog.spark.session import say_wrong_queries_once  # --help does without

    say_wrong_queries_once()
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    try:
        with _starting(remote or master):
            session = _connect(remote, properties) if remote else _classic(name, master, properties)
        try:
            yield session
        except KeyboardInterrupt:
            raise
        except BaseException:
            session.stop()
            raise
        session.stop()
    except KeyboardInterrupt:
        # What the JVM and py4j print as they go is of no use to the person who pressed Ctrl-C.
        discard_stderr()
        end_descendants(_END_SECONDS)
        raise


@contextmanager
def _starting(master: str) -> Iterator[None]:
    """Show on a terminal that Spark is starting, which takes seconds."""
    progress = terminal_progress()
    progress.begin(f"Starting Spark ({master})", 0)
    try:
        yield
    finally:
        progress.end()


def _classic(name: str, master: str, properties: dict[str, str]) -> SparkSession:
    from stratalog.spark import local_session  # as in `spark_executor`

    conf = {"spark.master": master} | properties
    if not master.startswith("local"):
        # Executors on other machines call back.
        conf = {"spark.driver.bindAddress": "0.0.0.0", "spark.driver.host": _own_address(master)} | conf
    try:
        return local_session(name, **conf)
    except UsageError:
        raise
    except Exception as error:  # whatever the JVM raises for a master that is unknown or unreachable
        raise UsageError(f"--master {master}: no Spark session: {_first_line(error)}") from error


def _own_address(master: str) -> str:
    """Return the address of this machine as the master sees it."""
    host, _, port = master.removeprefix("spark://").partition(",")[0].rpartition(":")
    if master.startswith("spark://") and host and port.isdigit():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((host, int(port)))  # sends nothing
                return str(probe.getsockname()[0])
            except OSError as error:
                raise UsageError(f"--master {master}: {error.strerror or error}") from error
    return socket.getfqdn()


def _connect(url: str, properties: dict[str, str]) -> SparkSession:
    from pyspark.errors import PySparkException  # an extra
    from pyspark.sql import SparkSession

    from stratalog.spark import register  # as in `spark_executor`

    if not url.startswith("sc://"):
        raise UsageError(f"--remote-session {url}: expected sc://HOST:PORT, the address of a Spark Connect server")
    _require_listener(url)
    try:
        builder = SparkSession.builder.remote(url)
        for key, value in properties.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        register(session)  # asks the server
    except ImportError as error:
        raise UsageError(f"Spark Connect is not installed: `pip install 'pyspark[connect]'` ({error})") from error
    except (PySparkException, OSError) as error:
        raise UsageError(f"--remote-session {url}: no answer: {_first_line(error)}") from error
    return session


def _require_listener(url: str) -> None:
    """Raise UsageError at once when no server listens there: Spark's client would try for ten minutes."""
    try:
        parts = urlsplit(url)
        address = parts.hostname or "", parts.port or _CONNECT_PORT
    except ValueError as error:
        raise UsageError(f"--remote-session {url}: {error}") from error
    try:
        socket.create_connection(address, timeout=_LISTENER_SECONDS).close()
    except OSError as error:
        raise UsageError(f"--remote-session {url}: no answer: {error.strerror or error}") from error


def _first_line(error: Exception) -> str:
    """Return the details of an error of gRPC: the first line of its text is the name of a class."""
    text = str(error).strip() or type(error).__name__
    details = re.search(r'^\s*details = "(.+)"$', text, re.MULTILINE)
    return details[1] if details else text.splitlines()[0]
