"""The examples of `docs/how-to/offline_jobs_from_python.md` run, each on places of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.spark.partitions import Partition, steady

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "offline_jobs_from_python.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
#: Those that need a session.
MARKED = [
    pytest.param(number, marks=pytest.mark.spark) if "SparkExecutor" in text else number
    for number, text in enumerate(EXAMPLES)
]


@pytest.mark.parametrize("number", MARKED)
def test_an_example_runs(request: pytest.FixtureRequest, tmp_path: Path, number: int) -> None:
    partition = Partition(tmp_path / "data")
    for _ in range(2):
        partition.segment(steady(10))
    (partition.directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    bucket = (tmp_path / "bucket").as_uri()
    for base in partition.bases:
        partition.upload(bucket, base)
    names = {
        "data_dir": str(tmp_path / "data"),
        "bucket_url": bucket,
        "state_dir": str(tmp_path / "state"),
        "new_dir": str(tmp_path / "new"),
    }
    if "SparkExecutor" in EXAMPLES[number]:
        names["spark"] = request.getfixturevalue("spark")
    exec(compile(EXAMPLES[number], f"{PAGE.name} example {number}", "exec"), names)
