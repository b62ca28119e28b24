"""What a first query does not wait for: compilation, and the loading of native code by each worker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stratalog.records.compression import Codec
from tests.spark.partitions import Batch, Partition, steady

#: After the rest of a script: which loops it has, and whether numba was needed for them.
_STATISTICS = """
import json, sys, types
loops = {
    each.__name__
    for name, module in list(sys.modules.items())
    if name.startswith("stratalog.")
    for each in vars(module).values()
    if isinstance(each, types.BuiltinFunctionType) and (each.__module__ or "").startswith("stratalog.")
}
print(json.dumps({"found": sorted(loops), "modules": sorted(sys.modules.keys() & {"numba"})}))
"""

_SET_UP = "from stratalog.records.native import warm; warm('decode')"

_LOUD_DAEMON = """
from stratalog.records.native import registry
from stratalog.spark.jvm import worker_daemon
load = registry.import_module
registry.import_module = lambda name: (print("loading", name), load(name))
worker_daemon._load_ahead()
print("ready")
"""

_FIRST_QUERY = """
import sys
from tests.spark.partitions import scan
from pyspark.sql.datasource import GreaterThanOrEqual
found = scan([GreaterThanOrEqual(("offset",), 3)], path=sys.argv[1], subscribe="orders", includeHeaders="true",
             isolationLevel="read_committed")
assert found.offsets == list(range(3, 43)), found.offsets
"""


def run(script: str, *arguments: str) -> dict[str, list[str]]:
    command = [sys.executable, "-c", script + _STATISTICS, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture
def records(tmp_path: Path) -> Path:
    partition = Partition(tmp_path / "data")
    partition.segment([*steady(4, codec=Codec.ZSTD), *steady(4, codec=Codec.LZ4), Batch([1, 2, 3])])
    return partition.root


def test_a_first_query_after_set_up_compiles_nothing(records: Path) -> None:
    run(_SET_UP)  # compiles what is not kept
    query = run(_FIRST_QUERY, str(records))
    assert query["modules"] == []
    assert query["found"] == run(_SET_UP)["found"] != []


def test_workers_are_forked_with_what_a_query_loads() -> None:
    run(_SET_UP)
    loaded = run(
        "import sys\n"
        "from stratalog.spark.jvm import worker_daemon; worker_daemon._load_ahead()\n"
        "assert 'stratalog.spark.reading.split_reader' in sys.modules\n"
    )
    assert loaded["found"] == run(_SET_UP)["found"] != []


def test_what_loading_prints_does_not_come_before_what_spark_reads() -> None:
    """The first thing on a daemon's standard output is where it listens."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            _LOUD_DAEMON,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "ready\n"
    assert "loading" in done.stderr


def test_planning_files_and_objects_loads_no_native_loops(records: Path) -> None:
    """A planner is a process of its own, forked from nothing of ours: it would wait for them before any task begins."""
    script = (
        "import sys\n"
        "from stratalog.spark.options.read_options import ReadOptions\n"
        "from stratalog.inspect.byte_sources import ByteSources\n"
        "from stratalog.spark.planning.filters import Constraints\n"
        "import stratalog.spark.source\n"
        "from stratalog.spark.planning.planner import Planner\n"
        "options = ReadOptions.parse({'path': sys.argv[1], 'subscribe': 'orders', 'isolationLevel': "
        "'read_committed'})\n"
        "assert Planner(options, Constraints(), ByteSources.of(options)).plan()\n"
        "assert 'numba' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(records)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
