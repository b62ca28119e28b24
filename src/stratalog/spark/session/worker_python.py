"""Choose the Python that the workers of a session run, and check that it can import the source.

By default PySpark takes `python3` from the path, even if another Python runs the program. If that one cannot import
stratalog, every query ends in a long ModuleNotFoundError.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stratalog.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("stratalog.spark")

_PROBE: Final = (
    "import importlib.util as u, sys; sys.exit(0 if u.find_spec('stratalog') and u.find_spec('pyspark') else 1)"
)
_PROBE_SECONDS: Final = 30


class WorkerPythonError(UsageError):
    """The Python that was chosen for workers cannot import stratalog."""


@dataclass(frozen=True, slots=True)
class WorkerPython:
    """The command that starts a session's workers; `is_chosen` by the user, `is_here` on this machine."""

    command: str
    is_chosen: bool
    is_here: bool
    python_path: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether it is the Python of this process. A virtual environment is a link, so links are not resolved."""
        found = shutil.which(self.command)
        return found is not None and os.path.abspath(found) == os.path.abspath(sys.executable)

    def can_import(self) -> bool:
        """Return whether it finds stratalog and pyspark. Assume so if it cannot be run here."""
        path = os.pathsep.join(filter(None, [self.python_path, os.environ.get("PYTHONPATH", "")]))
        try:
            asked = subprocess.run(
                [self.command, "-c", _PROBE],
                env=os.environ | {"PYTHONPATH": path},
                capture_output=True,
                timeout=_PROBE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return not self.is_here
        return asked.returncode == 0


def settle_worker_python(spark: SparkSession) -> None:
    """Make sure that the workers of a session on this machine can import the source.

    By default they run this Python. If the user has chosen one that cannot import it, raise UsageError with what to
    set. If workers run the `python3` of other machines, log a warning.
    """
    context = getattr(spark, "_sc", None)
    if context is None:  # Spark Connect: the server chooses the Python of its workers
        return
    found = WorkerPython(
        context.pythonExec,
        "PYSPARK_PYTHON" in os.environ or context._conf.contains("spark.pyspark.python"),
        str(context.master).startswith("local"),
        context._conf.get("spark.executorEnv.PYTHONPATH") or "",
    )
    if found.is_ours:
        return
    if not found.is_here:
        if not found.is_chosen and sys.prefix != sys.base_prefix:
            logger.warning("%s", advice(found))
    elif not found.can_import():
        if found.is_chosen:
            raise WorkerPythonError(advice(found))
        logger.info("workers of this session run %s, not %s", sys.executable, found.command)
        context.pythonExec = sys.executable


def advice(found: WorkerPython) -> str:
    """Return what is wrong with a Python, and what to do."""
    if found.is_here:
        return (
            f"Spark's workers run {found.command}, which cannot import stratalog: set PYSPARK_PYTHON={sys.executable} "
            "in the environment before the session is made (or the property spark.pyspark.python), or install "
            "stratalog there"
        )
    return (
        f"Spark's workers run whatever {found.command} is on their machines; if that one cannot import stratalog, set "
        "the property spark.pyspark.python: `stratalog spark package` makes an archive with a Python for executors"
    )
