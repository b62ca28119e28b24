"""Apache Kafka's jars and a Java to run them: found, or fetched once by Maven.

Jars live in `$KAFKA_REFERENCE/{broker,tools}` (default `~/.cache/kafka-reference`): the broker of 4.4.0, and
the command-line tools of 4.3.1 (the newest that is published). Fetching is whole or not at all, and safe among
processes.
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

JAVA_VERSION_MIN = 17
#: Options of a JVM that lives for seconds: little to compile, little to collect.
SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
KAFKA_VERSION = "4.4.0"
_POMS = Path(__file__).parent / "kafka"


class ReferenceUnavailableError(Exception):
    """This machine cannot run the reference broker; the message says what is missing."""


@dataclass(frozen=True)
class JarSet:
    """One directory of jars: `pom` fetches it, `mark` is a jar without which it is not complete."""

    name: str
    pom: str
    mark: str


BROKER_JARS = JarSet("broker", "pom-broker.xml", f"kafka_2.13-{KAFKA_VERSION}.jar")
TOOLS_JARS = JarSet("tools", "pom-tools.xml", "kafka-tools-4.3.1.jar")
#: kafka-configs alone; it needs the jars of the tools and, for Scala, of the broker behind it.
CONFIGS_JARS = JarSet("configs", "pom-configs.xml", "kafka_2.13-4.3.1.jar")

#: Kafka Streams, with the clients that it needs.
STREAMS_JARS = JarSet("streams", "pom-streams.xml", "kafka-streams-4.3.1.jar")

#: Integration tests of Kafka's clients, with what they need of its broker's classes.
CLIENT_SUITE_JARS = JarSet("client-suite", "pom-client-suite.xml", "kafka-clients-integration-tests-4.3.1-test.jar")


def jars_home() -> Path:
    return Path(os.environ.get("KAFKA_REFERENCE") or Path.home() / ".cache" / "kafka-reference")


@functools.cache
def java() -> str:
    """Path of a `java` of version 17 or later: `$JAVA_HOME/bin/java`, else the one on the path."""
    found = []
    candidates = [Path(os.environ["JAVA_HOME"]) / "bin" / "java"] if os.environ.get("JAVA_HOME") else []
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path))
    for candidate in candidates:
        if not candidate.is_file():
            continue
        version = _java_version(candidate)
        if version >= JAVA_VERSION_MIN:
            return str(candidate)
        found.append(f"{candidate} is version {version}")
    raise ReferenceUnavailableError(
        f"Apache Kafka {KAFKA_VERSION} needs Java >= {JAVA_VERSION_MIN} in JAVA_HOME or on the path; "
        f"{'; '.join(found) or 'there is none'}"
    )


def _java_version(path: Path) -> int:
    done = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match.group(1)) if match else 0


def classpath(*jars: JarSet) -> str:
    """The class path of jar sets, in their order, each fetched first when it is not there."""
    return os.pathsep.join(f"{_installed(each)}/*" for each in jars)


def _installed(jars: JarSet) -> Path:
    home = jars_home()
    directory = home / jars.name
    if (directory / jars.mark).is_file():
        return directory
    if shutil.which("mvn") is None:
        raise ReferenceUnavailableError(
            f"the jars of Apache Kafka {KAFKA_VERSION} are not in {directory}, and there is no mvn to fetch them"
        )
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / jars.mark).is_file():
            _fetch(jars, directory)
    return directory


def _fetch(jars: JarSet, directory: Path) -> None:
    part = directory.with_name(f"{jars.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    command = ["mvn", "-q", "-B", "-f", str(_POMS / jars.pom), "dependency:copy-dependencies"]
    command.append(f"-DoutputDirectory={part}")
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode or not (part / jars.mark).is_file():
        tail = "\n".join(done.stdout.strip().splitlines()[-5:])
        raise ReferenceUnavailableError(f"Maven did not fetch {jars.mark} (exit {done.returncode}): {tail}")
    shutil.rmtree(directory, ignore_errors=True)
    part.rename(directory)
