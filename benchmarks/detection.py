"""How often the format of an offset index is detected wrongly.

By the rule of KIP-1333, by ours without the log, and by ours with the log.

Random indexes, as a log with random batches makes them, of sizes that both entry sizes divide; the reader expects the
other format, as after an upgrade. Only those are counted; for sizes that one entry size divides there is nothing to
tell.

    python -m benchmarks.detection --indexes 20000
"""

from __future__ import annotations

import argparse
import math
import random
import struct
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from stratalog.log.format.offset_index_format import LARGE, LEGACY, OffsetIndexFormat, detect_from_entries
from stratalog.log.format.offset_index_proof import detect_from_log

INTERVAL_BYTES = 4096
ENTRIES_MAX = 300
#: How many entries are "the first few" of the document.
FEW = 10

Entries = list[tuple[int, int]]


class Profile(NamedTuple):
    """Bytes in the log for each offset: small where small records are compressed well."""

    name: str
    bytes_min: float
    bytes_max: float


PROFILES = (
    Profile("under 1 byte a record", 0.05, 1),
    Profile("1 to 10 bytes", 1, 10),
    Profile("10 to 100 bytes", 10, 100),
    Profile("100 bytes to 10 kB", 100, 10_000),
    Profile("10 kB to 1 MB", 10_000, 1_000_000),
)


class SparseLog:
    """A `.log` of which only the headers of indexed batches exist; other bytes are chance."""

    def __init__(self, entries: Entries, size: int, chance: random.Random) -> None:
        self._headers = {position: header(offset) for offset, position in entries}
        self._noise = chance.randbytes(4096)
        self.size = size

    def pread(self, size: int, position: int, /) -> bytes:
        found = self._headers.get(position)
        if found is not None:
            return found[:size]
        at = position % 2048
        return self._noise[at : at + size]


def header(last_offset: int) -> bytes:
    return struct.pack(">qiibIhiqqqhii", last_offset, 49, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)


def entries_of(chance: random.Random, profile: Profile, count: int) -> Entries:
    """`count` entries of a random log; batches of one size class, intervals filled as a broker fills them."""
    bytes_each = math.exp(chance.uniform(math.log(profile.bytes_min), math.log(profile.bytes_max)))
    batch = max(80.0, bytes_each, math.exp(chance.uniform(math.log(100), math.log(1_000_000))))
    found: Entries = []
    position = since = next_offset = 0
    while len(found) < count:
        size = max(61, int(batch * chance.uniform(0.5, 1.5)))
        next_offset += max(1, int(size / bytes_each))
        if position > LEGACY.position_max or next_offset > 2**31 - 1:
            break
        if since > INTERVAL_BYTES:
            found.append((next_offset - 1, position))
            since = 0
        position += size
        since += size
    return found


def by_document(data: bytes, expected: OffsetIndexFormat) -> OffsetIndexFormat:
    """The document's rule, plainly, for sizes that both divide."""
    left = [form for form in (LEGACY, LARGE) if ascends(form, data)]
    return left[0] if len(left) == 1 else expected


def ascends(form: OffsetIndexFormat, data: bytes) -> bool:
    before = (0, 0)
    for entry in form.entry.iter_unpack(data[: FEW * form.entry_size]):
        if entry[0] < before[0] or entry[1] < before[1]:
            return False
        before = entry
    return True


def count_wrong(profile: Profile, form: OffsetIndexFormat, indexes: int, chance: random.Random) -> Counter[str]:
    """How many of the indexes each rule takes for the other format, and how often it had to guess."""
    counts: Counter[str] = Counter()
    other = LARGE if form is LEGACY else LEGACY
    while counts["indexes"] < indexes:
        entries = entries_of(chance, profile, int(math.exp(chance.uniform(math.log(2), math.log(ENTRIES_MAX)))))
        whole = 24 // form.entry_size
        del entries[len(entries) // whole * whole :]
        if not entries:
            continue
        data = b"".join(form.entry.pack(*entry) for entry in entries)
        counts["indexes"] += 1
        counts["document"] += by_document(data, other) is not form
        counts["ours"] += detect_from_entries(data, other).format is not form
        log = SparseLog(entries, entries[-1][1] + 61, chance)
        counts["with log"] += detect_from_log(data, 0, log, log.size, other).format is not form
    return counts


def rows(indexes: int, seed: int) -> list[Sequence[str]]:
    found: list[Sequence[str]] = []
    for form in (LEGACY, LARGE):
        for profile in PROFILES:
            counts = count_wrong(profile, form, indexes, random.Random(seed))
            rates = [f"{100 * counts[rule] / indexes:.2f} %" for rule in ("document", "ours", "with log")]
            found.append((f"{form.entry_size} bytes", profile.name, *rates))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--indexes", type=int, default=5000, help="for each row (default 5000)")
    parser.add_argument("--seed", type=int, default=1333)
    options = parser.parse_args()
    print(
        "| written with | bytes in the log for each offset | the document's rule | ours, index alone | ours, with the "
        "log |"
    )
    print("|---|---|---:|---:|---:|")
    for row in rows(options.indexes, options.seed):
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
