"""Make `bucket/`: segments of one topic as the tiered-storage plugin of Aiven stores them, by the plugin's own classes.

    python -m tests.golden.aiven.make DIRECTORY

DIRECTORY has the plugin's sources (`core`, `commons` and `storage/core` of its repository, at 8fb15816) and in `lib/` the jars
that they need: bcprov-jdk18on 1.83, caffeine 3.2.3, bucket4j_jdk11-core 8.15.0, commons-io 2.18.0. Jackson, zstd-jni and
Kafka's own classes are those of the reference broker. `AivenGoldens.java` is the driver; it needs a JDK.

Four segments of 200 records each, offsets 0 to 799, in chunks of 1000 bytes: plain, compressed, encrypted, and both, each
RSA key beside them; `expected.json` says what is in them. The keys are made by each run, so a new run changes every byte.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import stratalog
from stratalog.records.record import Record
from tests.support.reference_jars import BROKER_JARS, classpath, java

HERE = Path(__file__).parent
VARIANTS = {
    "none": "AAAAAAAAAAAAAAAAAAAAAQ",
    "zstd": "AAAAAAAAAAAAAAAAAAAAAg",
    "aes": "AAAAAAAAAAAAAAAAAAAAAw",
    "both": "AAAAAAAAAAAAAAAAAAAABA",
}
RECORDS = 200
CHUNK_BYTES = 1000
FIRST_TIMESTAMP_MS = 1_700_000_000_000


def main(plugin: Path) -> None:
    sources = ":".join(
        str(plugin / "src" / part / "src/main/java") for part in ("core", "commons", "storage/core")
    )
    jars = f"{plugin}/lib/*:{classpath(BROKER_JARS)}"
    shutil.rmtree(HERE / "bucket", ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        compile_ = ["javac", "-nowarn", "-d", str(work / "classes"), "-sourcepath", sources, "-cp", jars]
        subprocess.run([*compile_, str(HERE / "AivenGoldens.java")], check=True)
        segments = _segments(work)
        for (variant, segment_id), segment in zip(VARIANTS.items(), segments, strict=True):
            base = int(segment.name)
            newest = FIRST_TIMESTAMP_MS + base + RECORDS - 1
            subprocess.run(
                [
                    java(),
                    "-cp",
                    f"{work / 'classes'}:{jars}",
                    "AivenGoldens",
                    str(HERE / "bucket"),
                    variant,
                    segment_id,
                    str(HERE / f"{variant}.pem"),
                    str(CHUNK_BYTES),
                    str(segment),
                    str(base),
                    str(base + RECORDS - 1),
                    str(newest),
                ],
                check=True,
            )
        expected = {
            variant: {path.name: path.read_bytes().hex() for path in sorted(segment.iterdir())}
            for variant, segment in zip(VARIANTS, segments, strict=True)
        }
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


def _segments(work: Path) -> list[Path]:
    """The files of each segment in a directory of its own, named as the driver wants them."""
    directory = work / "flights-3"
    found = []
    with stratalog.open_log(directory, {"index.interval.bytes": "500"}) as log:
        for number in range(len(VARIANTS)):
            base = number * RECORDS
            for start in range(base, base + RECORDS, 20):
                offsets = range(start, start + 20)
                log.append(
                    [
                        Record(0, FIRST_TIMESTAMP_MS + at, b"key-%d" % at, b"value %d " % at * 3)
                        for at in offsets
                    ]
                )
            log.partition_log.roll()
            segment = log.partition_log.segments[number]
            out = work / f"{base}"
            out.mkdir()
            shutil.copyfile(segment.log_path, out / "log")
            segment.offset_index.flush()
            segment.time_index.flush()
            shutil.copyfile(segment.offset_index_path, out / "index")
            shutil.copyfile(segment.time_index_path, out / "timeindex")
            shutil.copyfile(directory / f"{base + RECORDS:020d}.snapshot", out / "snapshot")
            (out / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
            if number % 2:
                (out / "txnindex").write_bytes(b"")
            found.append(out)
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
