"""Sessions of one process, one after the other, each with something of Spark's inside switched off; prints JSON.

python -m tests.spark.doctor_child DIRECTORY
python -m tests.spark.doctor_child        # a session that was made without stratalog
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyspark.util
from pyspark.sql import SparkSession

import stratalog.spark
from stratalog.spark.jvm import scan_rule
from stratalog.spark.jvm.capabilities import DAEMON, PUSHDOWN, UNIX_SOCKETS, probe_session
from stratalog.spark.jvm.scan_rule import BY_COLUMNS
from stratalog.spark.session import examine_session

QUIET = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.master": "local[1]"}


class Said(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def ours(**conf: str) -> SparkSession:
    return stratalog.spark.local_session("doctor", **(QUIET | conf))


def plain() -> SparkSession:
    builder = SparkSession.builder.appName("plain")
    for key, value in QUIET.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    stratalog.spark.register(spark)
    return spark


@contextmanager
def unknown_class(directory: Path, name: str) -> Iterator[None]:
    """One of our Java sources uses classes that this Spark does not have."""
    attribute = {"Scans": "_SCANS", "Columns": "_COLUMNS", "Streams": "_STREAMS"}[name]
    source: Path = getattr(scan_rule, attribute)
    broken = directory / source.name
    broken.write_text(source.read_text().replace("datasources.v2.python.", "datasources.v2.notthere."))
    with mock.patch.object(scan_rule, attribute, broken):
        yield


def off(spark: SparkSession) -> dict[str, Any]:
    return {each.capability.name: [each.why_off, each.is_chosen] for each in probe_session(spark) if not each.is_on}


def asking_for_columns(spark: SparkSession) -> list[list[str]]:
    health = examine_session(spark, {BY_COLUMNS: "true"})
    return [[each.weight.value, each.what, each.mend] for each in health.problems]


def _other(*_: Any) -> None:
    """What stands in the place of something of pyspark's."""


@contextmanager
def newer_inside() -> Iterator[None]:
    """What pyspark has to itself today has other names."""
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(pyspark.util, "_load_from_socket", _other))
        patches.enter_context(mock.patch.object(pyspark.util, "handle_worker_exception", _other))
        hidden = SparkSession._get_j_spark_session_class
        del SparkSession._get_j_spark_session_class
        patches.callback(setattr, SparkSession, "_get_j_spark_session_class", hidden)
        yield


def main(directory: Path | None) -> None:
    said = Said()
    logging.getLogger("stratalog.spark.capabilities").addHandler(said)
    found: dict[str, Any] = {}

    def session(name: str, make: Callable[[], SparkSession], look: Callable[[SparkSession], Any] = off) -> None:
        spark = make()
        again = spark.newSession()  # the application has been warned
        found[name] = [look(again), list(said.lines)]
        said.lines.clear()
        spark.stop()

    if directory is None:
        session("plain", plain)
        print(json.dumps(found), flush=True)
        return
    session("all", ours)
    for name in ("Scans", "Columns", "Streams"):
        with unknown_class(directory, name):
            session(name, ours)
    with unknown_class(directory, "Columns"):
        session("asked", ours, asking_for_columns)
    chosen = {DAEMON: "pyspark.daemon", UNIX_SOCKETS: "false", BY_COLUMNS: "false"}
    session("chosen", lambda: ours(**chosen))

    def later(spark: SparkSession) -> Any:
        spark.conf.set(PUSHDOWN, "false")
        with newer_inside():
            return off(spark)

    session("later", ours, later)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else None)
