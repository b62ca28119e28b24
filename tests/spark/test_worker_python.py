"""A session that somebody made without a word about workers: its queries run, and a mistake is reported in a line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stratalog.spark.jvm.java import spark_java_home
from stratalog.spark.session.worker_python import WorkerPython, advice
from tests.spark.partitions import Partition, steady

_SCRIPT = """
import json, sys
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
         .config("spark.driver.host", "127.0.0.1").getOrCreate())
import stratalog.spark
before = spark.sparkContext.pythonExec
stratalog.spark.register(spark)
def rows(session, topic):
    return session.read.format("stratalog").option("path", sys.argv[1]).option("subscribe", topic).load().count()
found = {"before": before, "after": spark.sparkContext.pythonExec, "rows": rows(spark, "orders")}
found["in another session"] = rows(spark.newSession(), "orders")
try:
    rows(spark, "order")
except Exception as error:
    found["mistake"] = str(error)
print(json.dumps(found))
"""


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A `python3` that has neither pyspark nor stratalog."""
    path = tmp_path / "bin" / "python3"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "$@"\n')
    path.chmod(0o755)
    return path


def test_the_python_of_this_process_is_known_by_its_place(stranger: Path) -> None:
    assert WorkerPython(sys.executable, is_chosen=False, is_here=True).is_ours
    assert not WorkerPython(str(stranger), is_chosen=False, is_here=True).is_ours
    assert not WorkerPython("/no/such/python", is_chosen=False, is_here=True).is_ours


def test_one_is_asked_whether_it_can_import_the_source(stranger: Path) -> None:
    assert WorkerPython(sys.executable, is_chosen=True, is_here=True).can_import()
    assert not WorkerPython(str(stranger), is_chosen=True, is_here=True).can_import()
    assert not WorkerPython("/no/such/python", is_chosen=True, is_here=True).can_import()
    assert WorkerPython("./environment/bin/python", is_chosen=True, is_here=False).can_import()


def test_the_advice_says_what_to_set(stranger: Path) -> None:
    assert f"set PYSPARK_PYTHON={sys.executable}" in advice(WorkerPython(str(stranger), True, is_here=True))
    assert "spark.pyspark.python" in advice(WorkerPython("python3", False, is_here=False))


@pytest.mark.spark
def test_a_plain_session_runs_queries_whatever_python3_is(tmp_path: Path, stranger: Path) -> None:
    Partition(tmp_path / "data").segment(steady(4))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment |= {"PATH": f"{stranger.parent}:{environment['PATH']}", "JAVA_HOME": str(spark_java_home())}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path / "data")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["before"], found["after"]) == ("python3", sys.executable)
    assert (found["rows"], found["in another session"]) == (20, 20)
    assert "UsageError: there is no topic order in" in found["mistake"]
    assert "Traceback" not in found["mistake"]
    assert "File " not in found["mistake"]
