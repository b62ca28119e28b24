"""Spark's own Kafka source, in a virtual environment of its own: made once, in a cache directory.

`$STRATALOG_BENCHMARKS` (default `~/.cache/stratalog-benchmarks`) holds `spark-kafka-<version>/venv` and `.../jars`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PYSPARK_VERSION = "4.2.0"

_POM = Path(__file__).with_suffix(".xml")

#: What pyspark does not bring itself.
_JARS = ("spark-sql-kafka-0-10", "spark-token-provider-kafka-0-10", "kafka-clients", "commons-pool2")


@dataclass(frozen=True)
class SparkKafkaSource:
    """A Python with pyspark, and the connector's jars."""

    python: Path
    jars: tuple[Path, ...]


def spark_kafka_source() -> SparkKafkaSource:
    """The environment, made first if it is not there. RuntimeError says which step failed."""
    cache = Path(os.environ.get("STRATALOG_BENCHMARKS") or Path.home() / ".cache" / "stratalog-benchmarks")
    home = cache / f"spark-kafka-{PYSPARK_VERSION}"
    done = home / "done"
    if not done.is_file():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        print(f"making {home} ...", file=sys.stderr, flush=True)
        _run("the virtual environment", [sys.executable, "-m", "venv", str(home / "venv")])
        pip = [str(home / "venv" / "bin" / "python"), "-m", "pip", "install", "-q"]
        _run("pyspark", [*pip, f"pyspark=={PYSPARK_VERSION}"])
        maven = ["mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies"]
        _run("the connector", [*maven, f"-DoutputDirectory={home / 'jars'}"])
        done.touch()
    jars = [path for name in _JARS for path in sorted((home / "jars").glob(f"{name}*.jar"))]
    return SparkKafkaSource(home / "venv" / "bin" / "python", tuple(jars))


def _run(what: str, command: list[str]) -> None:
    finished = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if finished.returncode:
        raise RuntimeError(f"{what} cannot be installed: {finished.stdout.strip()[-2000:]}")
