"""Another release of pyspark than the one that is installed, alone or with table engines that work with it: fetched
once.

`$STRATALOG_TESTS` (default `~/.cache/stratalog-tests`) holds `spark-<version>/{site,jars}`. Fetching is all or nothing,
and safe among processes. Run `sys.executable` with `python_path` first in PYTHONPATH: everything else is as in this
one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

#: The newest Spark that Delta Lake and Iceberg both have a release for.
ENGINES_SPARK = "4.1.4"

#: The newest release of the older line that the source supports.
OLDER_SPARK = "4.2.1"

_ENGINES = Path(__file__).parent / "spark" / "pom-engines-4.1.xml"


class SparkUnavailableError(Exception):
    """This machine cannot have it; the message says why."""


@dataclass(frozen=True)
class SparkRelease:
    """A directory to import pyspark from, and jars that were asked for: Delta Lake, Iceberg and spark-avro."""

    python_path: Path
    jars: tuple[Path, ...]

    def environment(self, *more: Path) -> dict[str, str]:
        """The environment for a Python that imports this pyspark, and from `more` directories."""
        paths = [str(self.python_path), *map(str, more), os.environ.get("PYTHONPATH", "")]
        return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def older_spark() -> SparkRelease:
    """Spark 4.2. SparkUnavailableError."""
    return _release(OLDER_SPARK, None)


def spark_with_engines() -> SparkRelease:
    """Spark 4.1 with its engines. SparkUnavailableError."""
    return _release(ENGINES_SPARK, _ENGINES)


def _release(version: str, jars: Path | None) -> SparkRelease:
    """`jars`: a file of Maven's that names them."""
    cache = Path(os.environ.get("STRATALOG_TESTS") or Path.home() / ".cache" / "stratalog-tests")
    home = cache / f"spark-{version}"
    if not (home / "done").is_file():
        if jars is not None and shutil.which("mvn") is None:
            raise SparkUnavailableError(f"Spark {version} is not in {home}, and there is no mvn to fetch its engines")
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f".lock-{version}").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (home / "done").is_file():
                _fetch(home, version, jars)
    return SparkRelease(home / "site", tuple(sorted((home / "jars").glob("*.jar"))))


def _fetch(home: Path, version: str, jars: Path | None) -> None:
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    _run([sys.executable, "-m", "venv", str(home / "venv")])
    pip = [
        str(home / "venv" / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "-q",
        "--target",
        str(home / "site"),
    ]
    _run([*pip, "--no-deps", f"pyspark=={version}"])
    if jars is not None:
        maven = ["mvn", "-q", "-B", "-f", str(jars), "dependency:copy-dependencies"]
        _run([*maven, f"-DoutputDirectory={home / 'jars'}"])
    shutil.rmtree(home / "venv")
    (home / "done").touch()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise SparkUnavailableError(f"{command[0]} failed (exit {done.returncode}): {done.stdout.strip()[-1000:]}")
