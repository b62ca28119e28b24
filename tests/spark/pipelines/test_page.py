"""The examples of `docs/reference/spark_jobs.md` run, each on places of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stratalog.cli.main import run
from tests.spark.partitions import example_names

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "spark_jobs.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
COMMANDS = sorted(set(re.findall(r"stratalog spark (\w+)", PAGE.read_text())))


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(spark: SparkSession, tmp_path: Path, number: int) -> None:
    names = {"spark": spark, **example_names(tmp_path)}
    exec(compile(EXAMPLES[number], f"{PAGE.name} example {number}", "exec"), names)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["spark", command, "--help"]) == 0
    assert f"stratalog spark {command}" in capsys.readouterr().out
