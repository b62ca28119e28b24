"""Spark sessions that know the source."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stratalog.errors import UsageError
from stratalog.spark.jvm import (
    DAEMON,
    DAEMON_MODULE,
    PUSHDOWN,
    UNIX_SOCKETS,
    install_scan_rule,
    is_connect,
    spark_java_home,
    warn_of_slow_paths,
)
from stratalog.spark.options import option_text
from stratalog.spark.session.worker_python import settle_worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REGISTERS: Final = "_stratalog_registers"

_LOG4J: Final = Path(__file__).with_name("log4j2.properties")

_DEFAULTS: Final = {
    "spark.master": "local[*]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A fifth faster from worker to JVM than TCP on the loopback.
    UNIX_SOCKETS: "true",
    DAEMON: DAEMON_MODULE,
    PUSHDOWN: "true",
}


def register_source(spark: SparkSession) -> None:
    """See `stratalog.spark.register`."""
    try:
        from stratalog.spark.source import FilteringStratalogDataSource, StratalogDataSource  # loads pyarrow
    except ImportError as error:
        raise UsageError(f"the Spark source cannot be loaded ({error}): `pip install 'stratalog[spark]'`") from error

    settle_worker_python(spark)
    pushes = install_scan_rule(spark)["scan-rule"] is None and _allow_pushdown(spark)
    warn_of_slow_paths(spark)
    with _as_active(spark):
        spark.dataSource.register(FilteringStratalogDataSource if pushes else StratalogDataSource)
    _register_new_ones_too(spark)


def _register_new_ones_too(spark: SparkSession) -> None:
    """Register the source with sessions made by `newSession` too: Spark keeps sources by session."""
    make = getattr(spark, "newSession", None)  # None for Spark Connect
    if make is None or hasattr(make, _REGISTERS):
        return

    @wraps(make)
    def new_session() -> SparkSession:
        made: SparkSession = make()
        register_source(made)
        return made

    setattr(new_session, _REGISTERS, True)
    spark.newSession = new_session  # type: ignore[method-assign]


@contextmanager
def _as_active(spark: SparkSession) -> Iterator[None]:
    """Make this the thread's active session, where Spark looks up source names."""
    if is_connect(spark):
        yield
        return
    jvm: Any = spark._jvm
    sessions = spark._get_j_spark_session_class(jvm)
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def make_active(spark: SparkSession) -> None:
    """Let this thread write.

    For a write, Spark looks up a Python data source in the thread's active session, which only the thread that made
    the session has. Spark Connect does not need this.
    """
    if not is_connect(spark):
        jvm: Any = spark._jvm
        spark._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)


def _allow_pushdown(spark: SparkSession) -> bool:
    """Enable filter pushdown and return whether it is on. Otherwise Spark refuses a source that takes filters."""
    if spark.conf.get(PUSHDOWN, None) != "true":
        if not spark.conf.isModifiable(PUSHDOWN):
            return False
        spark.conf.set(PUSHDOWN, "true")
    return True


def open_local_session(name: str, conf: Mapping[str, str | int | bool]) -> SparkSession:
    """See `stratalog.spark.local_session`."""
    try:
        from pyspark.sql import SparkSession  # an extra
    except ImportError as error:
        raise UsageError("Spark is not installed: `pip install stratalog[spark]`") from error

    properties: dict[str, str] = _DEFAULTS | {key: option_text(value) for key, value in conf.items()}
    worker_python = properties.get("spark.pyspark.python", sys.executable)
    if worker_python == sys.executable:
        # The JVM starts the workers, which import the source by name from the place where this process found it.
        python_path = properties.get("spark.executorEnv.PYTHONPATH", "").split(os.pathsep)
        properties["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(filter(None, [*python_path, _import_root()]))
    log4j = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"
    java_options = properties.get("spark.driver.extraJavaOptions", "")
    properties["spark.driver.extraJavaOptions"] = f"{log4j} {java_options}".strip()

    builder = SparkSession.builder.appName(name)
    for key, value in properties.items():
        builder = builder.config(key, value)
    say_wrong_queries_once()
    with _launch_environment(worker_python):
        spark = builder.getOrCreate()
    register_source(spark)
    return spark


def say_wrong_queries_once() -> None:
    """Report a wrong query once, as its AnalysisException, without pyspark's JSON of JVM frames on stderr."""
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)


def _import_root() -> str:
    """Return the directory of the `stratalog` package that this process imported."""
    return str(Path(__file__).resolve().parents[3])


@contextmanager
def _launch_environment(worker_python: str) -> Iterator[None]:
    """Set the environment variables of Spark's launcher and workers, and restore them afterwards."""
    from pyspark import SparkContext  # only called once pyspark is known to be there

    if SparkContext._active_spark_context is not None:
        yield
        return
    changes = {"JAVA_HOME": str(spark_java_home()), "PYSPARK_PYTHON": worker_python}
    changes["PYSPARK_DRIVER_PYTHON"] = sys.executable
    before = {key: os.environ.get(key) for key in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
