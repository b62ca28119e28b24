"""Any single flipped bit in any file of a log directory is found, but where the format says a thing only once.

What is said once, and so cannot be found: the base offset of a batch, if the offsets still ascend (compaction leaves
such gaps) and no index entry tells it; values in checkpoints that stay within the log; where the first leader epoch
begins, unless the last broker stopped cleanly; a topic id, cluster id, node id or directory id that is still one; white
space.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from stratalog.records.batch import iter_batches
from tests.log.check.conftest import report_of

#: Text in which most characters are values that nothing else repeats: only what breaks the format is found.
SAID_ONCE = {
    "meta.properties",
    "partition.metadata",
    ".kafka_cleanshutdown",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
}


def is_said_once(path: Path, position: int) -> bool:
    if path.name in SAID_ONCE:
        return True
    if path.suffix == ".log":
        batch = next(one for one in iter_batches(path.read_bytes()) if one.start + one.size > position)
        return position - batch.start < 8
    if path.name == "leader-epoch-checkpoint":
        data = path.read_bytes()
        first_start = data.index(b" ") + 1  # a log may begin anywhere in its first segment
        return data[position : position + 1] in b" \n" or first_start <= position <= data.index(b"\n", first_start)
    return False


@pytest.mark.parametrize("seed", range(6))
def test_a_flipped_bit_is_found(data: Path, seed: int) -> None:
    chosen = random.Random(seed)
    shutil.rmtree(data / "orders-1")  # one partition is enough, and quicker
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (data / name).write_bytes(b"0\n0\n")
    (data / ".kafka_cleanshutdown").unlink()
    assert report_of(data).findings == []
    files = sorted(path for path in (data / "orders-0").iterdir() if path.stat().st_size)
    by_kind = {path.suffix or path.name: [one for one in files if one.suffix == path.suffix] for path in files}
    missed = []
    for kind in sorted(by_kind) * 4:
        path = chosen.choice(by_kind[kind])
        good = path.read_bytes()
        position, bit = chosen.randrange(len(good)), chosen.randrange(8)
        if is_said_once(path, position):
            continue
        bad = bytearray(good)
        bad[position] ^= 1 << bit
        path.write_bytes(bad)
        if not report_of(data).findings:
            missed.append((path.name, position, bit))
        path.write_bytes(good)
    assert missed == [], f"seed {seed}"


def test_every_header_byte_of_a_batch_but_its_base_offset_is_watched(data: Path) -> None:
    """Length, leader epoch and magic lie outside the CRC: sizes, the epochs of the log and the format find them."""
    log = sorted((data / "orders-0").glob("*.log"))[0]
    good = log.read_bytes()
    start = list(iter_batches(good))[3].start
    for position in range(start + 8, start + 61):
        for bit in (0, 7):
            bad = bytearray(good)
            bad[position] ^= 1 << bit
            log.write_bytes(bad)
            assert report_of(data / "orders-0").findings, f"byte {position - start}, bit {bit}"
    log.write_bytes(good)


def test_a_base_offset_is_watched_where_the_order_or_an_index_tells_it(data: Path) -> None:
    log = sorted((data / "orders-0").glob("*.log"))[0]
    good = log.read_bytes()
    batch = list(iter_batches(good))[3]
    for bit in range(63):
        bad = bytearray(good)
        bad[batch.start + 7 - bit // 8] ^= 1 << bit % 8
        log.write_bytes(bad)
        assert report_of(data / "orders-0").findings, f"bit {bit}"
