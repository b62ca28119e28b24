"""A log on a disk that is full: every refusal is an error of Python, whatever is opened, searched, sealed or recovered.

On a tmpfs every read of a hole through a map takes a page, and on a file system with blocks smaller than a page so does
a write beside what is there: on a full disk both were SIGBUS, the end of the process. So the log lives in another
process.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

LIFE = """
import errno, os, random, sys
from contextlib import suppress
from pathlib import Path
from stratalog.config.topic import LogConfig
from stratalog.errors import KafkaStorageError, OffsetOutOfRangeError
from stratalog.log.partition_log import PartitionLog
from tests.log.log_model import batch_of, read_records

root, seed = Path(sys.argv[1]), int(sys.argv[2])
print("seed", seed, flush=True)
chance = random.Random(seed)
config = LogConfig(index_interval_bytes=0, segment_bytes=30_000, segment_index_bytes=300_000, preallocate=False)
ballast, acknowledged, refusals = root / "ballast", [], 0

def fill():
    with open(ballast, "ab", buffering=0) as file, suppress(OSError):
        for size in (4096, 512, 1):
            with suppress(OSError):
                while True:
                    assert file.write(bytes(size)) == size or True
                    if os.statvfs(root).f_bavail == 0:
                        break

for life in range(6):
    try:
        log = PartitionLog.open(root / "foo-0", config, clean_shutdown=life % 3 == 1 and was_clean)
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
        refusals += 1
        ballast.unlink(missing_ok=True)
        log = PartitionLog.open(root / "foo-0", config, clean_shutdown=False)
    was_clean = False
    assert [record.value for record in read_records(log, 0)] == acknowledged, life
    for n in range(300):
        if n == 100 and life % 2:
            fill()
        if n == 250:
            ballast.unlink(missing_ok=True)
        value = b"%d-%d" % (life, n) + bytes(chance.randrange(300))
        try:
            log.append_as_leader(batch_of([value], [n + 1]), leader_epoch=0)
        except KafkaStorageError as error:
            assert "No space left" in str(error) or "earlier sync failed" in str(error), error
            refusals += 1
        else:
            acknowledged.append(value)
        if n % 20 == 0:
            with suppress(KafkaStorageError):
                log.flush()
            log.update_high_watermark(log.log_end_offset)
            log.read(chance.randrange(log.log_end_offset), 1000)
            log.offset_for_timestamp(chance.randrange(300))
    if life % 3 == 0:
        with suppress(KafkaStorageError):
            log.close()
            was_clean = True
    else:
        log.abandon(KafkaStorageError("killed"))
    if life % 2 == 0:
        fill()
ballast.unlink(missing_ok=True)
log = PartitionLog.open(root / "foo-0", config, clean_shutdown=False)
assert [record.value for record in read_records(log, 0)] == acknowledged
assert refusals > 10, refusals
print("done", len(acknowledged), refusals)
"""

PREALLOCATED = """
import sys
from contextlib import suppress
from pathlib import Path
from stratalog.config.topic import LogConfig
from stratalog.errors import KafkaStorageError
from stratalog.log.partition_log import PartitionLog
from tests.log.log_model import batch_of, read_records

root = Path(sys.argv[1])
config = LogConfig(segment_bytes=600_000, segment_index_bytes=2_400, preallocate=True)
log = PartitionLog.open(root / "foo-0", config)
for n in range(20):
    log.append_as_leader(batch_of([b"%d" % n], [n + 1]), leader_epoch=0)
log.flush()
assert log.active_segment.log_path.stat().st_size == 600_000
log.abandon(KafkaStorageError("killed"))
with open(root / "ballast", "ab", buffering=0) as file, suppress(OSError):
    while True:
        file.write(bytes(4096))
(root / "ballast").open("r+b").truncate((root / "ballast").stat().st_size - 64_000)  # for indexes and a snapshot
log = PartitionLog.open(root / "foo-0", config, recovery_point=int(sys.argv[2]))
assert [record.offset for record in read_records(log, 0)] == list(range(20))
print("done")
"""

TMPFS = "mount -t tmpfs -o size=1200k tmpfs {root}"
EXT4 = (
    "truncate -s 3M {root}.img && mkfs.ext4 -q -b 1024 -O ^has_journal -m 0 {root}.img"
    " && mount -o loop {root}.img {root}"
)


@pytest.mark.parametrize("mount", [TMPFS, EXT4], ids=["tmpfs", "ext4 with blocks of 1 KB"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_log_on_a_full_disk_is_refused_and_loses_nothing(tmp_path: Path, mount: str, seed: int) -> None:
    """Whatever was acknowledged is there after each life; the process lives to say so."""
    live(tmp_path, mount, LIFE, seed)


@pytest.mark.parametrize("recovery_point", [0, 20])
def test_a_preallocated_segment_on_a_full_tmpfs_is_recovered(tmp_path: Path, recovery_point: int) -> None:
    """Behind its records is a hole, for which there is no room: it is read, and needs none."""
    live(tmp_path, TMPFS, PREALLOCATED, recovery_point)


def live(tmp_path: Path, mount: str, life: str, number: int) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    inside = f'{mount.format(root=root)} && touch {tmp_path}/mounted && exec {sys.executable} -c "$1" {root} {number}'
    privileges = [["unshare", "-m"], ["unshare", "-Urm"]]
    if shutil.which("unshare") is None:
        pytest.skip("no unshare")
    for privilege in privileges:
        done = subprocess.run(
            [*privilege, "sh", "-c", inside, "life", textwrap.dedent(life)],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
            check=False,
        )
        if (tmp_path / "mounted").exists():
            break
    else:
        pytest.skip(f"no file system may be mounted: {done.stderr.strip()}")
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
    assert "done" in done.stdout
