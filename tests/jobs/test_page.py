"""The examples of `docs/how-to/offline_jobs_from_python.md` run, each on places of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.spark.partitions import example_names

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "offline_jobs_from_python.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
#: Those that need a session.
MARKED = [
    pytest.param(number, marks=pytest.mark.spark) if "SparkExecutor" in text else number
    for number, text in enumerate(EXAMPLES)
]


@pytest.mark.parametrize("number", MARKED)
def test_an_example_runs(request: pytest.FixtureRequest, tmp_path: Path, number: int) -> None:
    names = example_names(tmp_path)
    if "SparkExecutor" in EXAMPLES[number]:
        names["spark"] = request.getfixturevalue("spark")
    exec(compile(EXAMPLES[number], f"{PAGE.name} example {number}", "exec"), names)
