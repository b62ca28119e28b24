"""The jars of Apache Kafka for a controller: those of an installation, or fetched once by Maven and kept."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from stratalog.errors import UsageError
from stratalog.util import REAL_FILESYSTEM

KAFKA_VERSION: Final = "4.4.0"
_CORE_JAR: Final = "kafka_2.13-*.jar"
#: kafka-tools-api 4.4.0 is not published; a controller needs nothing of it that 4.3.1 lacks.
_COORDINATES: Final = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools-api", "4.3.1"),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


def kafka_classpath(home: Path | None) -> str:
    """Return the class path of a Kafka: that of the installation `home`, else the cached one, fetched if need be.

    Raises UsageError, in one line, for a directory without Kafka, and when Maven is missing or fails.
    """
    return f"{_libraries(home)}/*"


def _libraries(home: Path | None) -> Path:
    if home is not None:
        for directory in (home / "libs", home):
            if next(directory.glob(_CORE_JAR), None) is not None:
                return directory
        raise UsageError(f"--kafka-home {home}: there is no {_CORE_JAR} in {home / 'libs'}; give an unpacked Kafka 4")
    directory = _cache() / f"kafka-{KAFKA_VERSION}"
    if not _is_whole(directory):
        _fetch_once(directory)
    return directory


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stratalog"


def _is_whole(directory: Path) -> bool:
    return next(directory.glob(_CORE_JAR), None) is not None


def _fetch_once(directory: Path) -> None:
    """Download into a temporary directory, renamed when complete. One process at a time."""
    maven = shutil.which("mvn")
    if maven is None:
        raise UsageError(
            f"Apache Kafka {KAFKA_VERSION} is not in {directory}, and there is no Maven (mvn) on the path to fetch it;"
            " install Maven, or give --kafka-home DIR with an unpacked Kafka 4"
        )
    REAL_FILESYSTEM.make_dirs(directory.parent)
    with (directory.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_whole(directory):
            print(f"fetching Apache Kafka {KAFKA_VERSION} by Maven into {directory}, once", flush=True)
            _fetch(maven, directory)


def _fetch(maven: str, directory: Path) -> None:
    part = directory.with_name(f"{directory.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    REAL_FILESYSTEM.make_dirs(part)
    pom = part / "pom.xml"
    pom.write_text(_pom())
    command = [maven, "-q", "-B", "-f", str(pom), _GOAL, f"-DoutputDirectory={part}"]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode or not _is_whole(part):
        errors = [line for line in done.stdout.splitlines() if "ERROR" in line] or done.stdout.splitlines()
        raise UsageError(
            f"Maven did not fetch Apache Kafka {KAFKA_VERSION} (exit code {done.returncode}):"
            f" {errors[0] if errors else 'no reason given'}; give --kafka-home DIR with an unpacked Kafka 4"
        )
    pom.unlink()
    shutil.rmtree(directory, ignore_errors=True)
    part.rename(directory)


def _pom() -> str:
    """Return a project whose dependencies are the coordinates, and of Kafka's own none that was not published."""
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        "<exclusions><exclusion><groupId>org.apache.kafka</groupId><artifactId>kafka-tools-api</artifactId></exclusion>"
        "</exclusions></dependency>"
        for group, name, version in _COORDINATES
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>stratalog</groupId>'
        f"<artifactId>kafka</artifactId><version>1</version><dependencies>{dependencies}</dependencies></project>\n"
    )
