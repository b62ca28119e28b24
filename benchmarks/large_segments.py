"""One segment of several GiB through everything that a segment meets (KIP-1333), each step timed and checked.

    python -m benchmarks.large_segments [--gib 6] [--store s3|directory] [--directory DIR] [--skip-spark]

`serve` at metadata.version 32 with segment.bytes of 8 GiB or more; a client of librdkafka produces real batches;
fetches at sampled offsets; kill -9 and recovery; a dump behind the border of 2^32 bytes; the tier is switched on, the
segment rolls, is copied, and deleted here; fetches again, now from the store; kill -9 once more; a Spark scan of the
lot.

Needs room for two copies of the records, with some to spare, and removes them at the end. Stops at the first check that
fails.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic
from tests.support.s3_server import S3Server

from benchmarks.spark_scan import Scanner
from benchmarks.support.brokers import Stratalog
from benchmarks.support.client import Client
from stratalog.errors import RemoteStorageError
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.log.format.file_names import log_file, offset_index_file
from stratalog.log.format.offset_index_format import LARGE
from stratalog.log.index.offset_index import OffsetIndex
from stratalog.records.batch import iter_batches
from stratalog.remote.storage.object_store import ObjectStore

GIB = 2**30
TOPIC = "large"
RECORD_BYTES = 8 * 1024
SAMPLES = 200
WAIT_S = 3600.0

#: KIP-1333 is finalized from this level on.
LEVEL = "32"


class CheckError(Exception):
    """A step did not do what it should."""


def check(is_so: bool, what: str) -> None:
    if not is_so:
        raise CheckError(what)


@dataclass
class Steps:
    """The table: a line for each step as it ends."""

    size: int
    started: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        print(f"{'step':<34} {'seconds':>8} {'MB/s':>7}  checked", flush=True)

    @contextlib.contextmanager
    def step(self, name: str, checked: str, *, moved: int = 0) -> Iterator[None]:
        """`moved` bytes go through the step, all of them."""
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        rate = f"{moved / seconds / 1e6:7.0f}" if moved else " " * 7
        print(f"{name:<34} {seconds:8.2f} {rate}  {checked}", flush=True)

    def end(self) -> None:
        print(f"{'all of it':<34} {time.perf_counter() - self.started:8.2f}", flush=True)


class Records:
    """Numbered records that nobody can mistake for one another: number `n` is at offset `n`."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._noise = random.Random(1333).randbytes(4 * 1024 * 1024)

    def value(self, number: int) -> bytes:
        at = number * 7919 % (len(self._noise) - RECORD_BYTES)
        return number.to_bytes(8, "big") + self._noise[at : at + RECORD_BYTES - 8]

    def produce(self, bootstrap_servers: str, first: int, last: int) -> None:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 20,
                "batch.size": 900_000,
                "queue.buffering.max.kbytes": 256 * 1024,
                "queue.buffering.max.messages": 100_000,
            }
        )
        failed: list[str] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed.append(str(error))

        for number in range(first, last):
            while True:
                try:
                    producer.produce(TOPIC, self.value(number), partition=0, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.05)
            producer.poll(0)
        check(producer.flush(300) == 0 and not failed, f"everything is acknowledged: {failed[:1]}")

    def samples(self) -> list[int]:
        """Offsets all over, the first and the last."""
        chosen = random.Random(7).sample(range(self.count), min(SAMPLES, self.count))
        return [0, *sorted(chosen), self.count - 1]

    def expect(self, address: tuple[str, int], offsets: Sequence[int]) -> None:
        """A fetch at each of these offsets brings the batch that has it, sound, and the record in it."""
        with Client(address) as client:
            for offset in offsets:
                records = client.fetch(TOPIC, offset, partition_bytes_max=1)  # one batch comes, however large
                batch = next(iter_batches(records), None)
                check(batch is not None, f"offset {offset} comes")
                assert batch is not None
                check(batch.is_crc_valid, f"the batch at offset {offset} is sound")
                found = [record for record in batch.records() if record.offset == offset]
                check(
                    len(found) == 1,
                    f"the batch at offset {offset} has it, and not {batch.base_offset} to {batch.last_offset}",
                )
                check(found[0].value == self.value(offset), f"the record at offset {offset} is what was written")


class Broker(Stratalog):
    """One that can be killed."""

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.stop()

    def create(self, config: Mapping[str, str]) -> None:
        admin = self._admin()
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=dict(config))])[TOPIC].result(60)

    def configure(self, config: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=entries)
        admin: AdminClient = self._admin()
        admin.incremental_alter_configs([resource])[resource].result(60)


@dataclass
class Run:
    """All steps over one broker in `directory`."""

    directory: Path
    size: int
    store_url: str
    store_options: Mapping[str, str]
    spark: bool

    def __post_init__(self) -> None:
        self.steps = Steps(self.size)
        self.records = Records(self.size // RECORD_BYTES)
        self.segment_bytes = max(8 * GIB, 2 * self.size)
        self.broker = Broker(
            self.directory,
            {
                "stratalog.initial.metadata.version": LEVEL,
                "remote.log.storage.system.enable": "true",
                "stratalog.remote.url": self.store_url,
                **{f"rsm.config.{name}": value for name, value in self.store_options.items()},
                "remote.log.manager.task.interval.ms": "500",
                "log.retention.check.interval.ms": "500",
                "log.initial.task.delay.ms": "100",
                "log.index.size.max.bytes": str(self.segment_bytes // 4096 * 12),
            },
        )
        self.partition = self.directory / "data" / f"{TOPIC}-0"
        self.store = ObjectStore.from_url(self.store_url, self.store_options)

    def run(self) -> None:
        try:
            self._local()
            self._remote()
            if self.spark:
                self._scan()
        finally:
            self.broker.stop()
        self.steps.end()

    # --- the local tier ---------------------------------------------------------------------------------------------

    def _local(self) -> None:
        step, records, broker = self.steps.step, self.records, self.broker
        samples = records.samples()
        with step("start, create the topic", f"segment.bytes={self.segment_bytes} is taken at level {LEVEL}"):
            broker.start()
            broker.create({"segment.bytes": str(self.segment_bytes), "retention.ms": "-1", "file.delete.delay.ms": "0"})
        with step("produce", f"{records.count} records acknowledged, one segment", moved=self.size):
            records.produce(broker.bootstrap_servers, 0, records.count)
            check(self._segments() == [0], f"one segment, not {self._segments()}")
            check(self._log.stat().st_size > self.size, "the segment has all of it")
        with step("fetch here", f"{len(samples)} sampled offsets"):
            records.expect(broker.address, samples)
        broker.kill()
        with step("recover after kill -9", "it serves the last record", moved=self.size):
            broker.start()
            records.expect(broker.address, [records.count - 1])
        with step("fetch here, recovered", f"{len(samples)} sampled offsets"):
            records.expect(broker.address, samples)
        self._dump()

    def _dump(self) -> None:
        """From an index entry behind 4 GiB on; of smaller sizes, behind two thirds."""
        border = 2**32 if self.size > 2**32 + 2**27 else self.size * 2 // 3
        with OffsetIndex(self._index, 0, max_size=0, writable=False, entry_size=LARGE.entry_size) as index:
            used = [entry for entry in index if entry.position]
        entry = next(entry for entry in used if entry.position > border)
        checked = f"the batch of offset {entry.offset} stands at {entry.position}"
        with self.steps.step(f"dump behind {border}", checked):
            printed = self._stratalog("dump", str(self._log), "--from", f"@{entry.position}", "--max-bytes", "1000000")
            check(f"lastOffset: {entry.offset} " in printed, "the dump begins with the batch of the index entry")
            check(f"position: {entry.position} " in printed, "the dump says where it stands")
        with self.steps.step("verify the index by the log", f"{len(used)} entries"):
            self._stratalog("dump", str(self._index), "--verify-index-only")

    # --- the remote tier --------------------------------------------------------------------------------------------

    def _remote(self) -> None:
        step, records, broker = self.steps.step, self.records, self.broker
        samples = records.samples()
        with step("roll, by a smaller segment.bytes", "the next record begins a segment"):
            broker.configure(
                {
                    "remote.storage.enable": "true",
                    "segment.bytes": str(2**20),
                    "remote.log.copy.disable": "true",
                }
            )
            records.produce(broker.bootstrap_servers, records.count, records.count + 1)
            check(self._segments() == [0, records.count], f"two segments, not {self._segments()}")
            size = self._log.stat().st_size
        with step("copy to the store", "size and entry size in the manifest", moved=size):
            broker.configure({"remote.log.copy.disable": "false"})
            self._wait("the segment is in the store", self._is_copied)
            (manifest,) = list_remote_segments(self.store)
            check(
                manifest.segment_size_in_bytes == size,
                f"the manifest says {manifest.segment_size_in_bytes} bytes",
            )
            check(manifest.end_offset == records.count - 1, f"the manifest ends at {manifest.end_offset}")
            check(manifest.offset_index_entry_size == 12, "entries of 12 bytes are noted")
        with step("delete here", "only the active segment is left"):
            broker.configure({"local.retention.bytes": "1"})
            self._wait("the segment is gone", lambda: self._segments() == [records.count])
        with step("fetch from the store", f"{len(samples)} sampled offsets"):
            records.expect(broker.address, samples)
        broker.kill()
        with step("start after kill -9", "the first record comes from the store"):
            broker.start()
            records.expect(broker.address, [0])
        with step("fetch from both tiers", f"{len(samples) + 1} sampled offsets"):
            records.expect(broker.address, [*samples, records.count])

    def _scan(self) -> None:
        options = {"path": str(self.directory / "data"), "remote": self.store_url, "subscribe": TOPIC}
        options |= {f"remote.{name}": value for name, value in self.store_options.items()}
        few = min(1000, self.records.count)
        with Scanner(sys.executable, "stratalog") as scanner:
            with self.steps.step("Spark, its first query", f"the first {few} records: workers start, code is compiled"):
                found = scanner.scan(options | {"endingOffsets": f'{{"{TOPIC}": {{"0": {few}}}}}'}, False)
                check(found["records"] == few, f"Spark counts {found['records']} of {few} records")
            with self.steps.step("Spark scan of both tiers", "count, bytes of values, last offset", moved=self.size):
                found = scanner.scan(options, False)
        count = self.records.count + 1
        check(found["records"] == count, f"Spark counts {found['records']} of {count} records")
        check(
            found["value_bytes"] == count * RECORD_BYTES,
            f"Spark finds {found['value_bytes']} bytes of values",
        )
        check(found["offset"] == count - 1, f"Spark's last offset is {found['offset']}")

    # --- what is so -------------------------------------------------------------------------------------------------

    @property
    def _log(self) -> Path:
        return self.partition / log_file(0)

    @property
    def _index(self) -> Path:
        return self.partition / offset_index_file(0)

    def _segments(self) -> list[int]:
        return sorted(int(path.stem) for path in self.partition.glob("*.log"))

    def _is_copied(self) -> bool:
        try:
            return bool(list_remote_segments(self.store))
        except RemoteStorageError:  # the bucket is made by the first put
            return False

    def _stratalog(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "stratalog", *arguments], capture_output=True, text=True, check=False
        )
        check(
            done.returncode == 0,
            f"stratalog {arguments[0]} ended with {done.returncode}: {done.stderr[-500:]}",
        )
        return done.stdout

    def _wait(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_so():
            check(time.monotonic() < deadline, f"{what}, within {WAIT_S:.0f} s")
            time.sleep(0.1)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=6, help="of records, in one segment (default: 6)")
    parser.add_argument("--store", choices=("s3", "directory"), default="s3", help="the remote tier (default: s3)")
    parser.add_argument("--directory", type=Path, help="directory for all files of the run (default: a temporary one)")
    parser.add_argument("--skip-spark", action="store_true", help="leave out the scan, which needs Java")
    options = parser.parse_args(argv)
    size = int(options.gib * GIB)
    with (
        tempfile.TemporaryDirectory(prefix="stratalog-large-", dir=options.directory) as name,
        contextlib.ExitStack() as stack,
    ):
        home = Path(name)
        needed, free = 3 * size + GIB, shutil.disk_usage(home).free
        if free < needed:
            raise SystemExit(f"{home} has {free / GIB:.0f} GiB left, {needed / GIB:.0f} are needed")
        url, store_options = (home / "store").as_uri(), {}
        if options.store == "s3":
            s3 = stack.enter_context(S3Server(home / "s3"))
            url, store_options = s3.url("large/tiered"), s3.options
        try:
            Run(home / "broker", size, url, store_options, not options.skip_spark).run()
        except CheckError as error:
            raise SystemExit(f"failed: {error}") from error


if __name__ == "__main__":
    main()
