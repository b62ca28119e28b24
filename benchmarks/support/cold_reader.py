"""Readers of cold topics in a process of their own: `ADDRESS READERS END BYTES_PER_SECOND SECONDS`.

Reader n fetches topic `cold-n` from offset 0 to END and again, at its pace. Prints a line when all have begun, and at
the end how many bytes a second they read together.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from benchmarks.support.client import Client
from benchmarks.support.pace import read_at_pace

FETCH_BYTES = 1024 * 1024


def main() -> None:
    address, readers, end, pace, seconds = sys.argv[1:]
    host, _, port = address.rpartition(":")

    def reads(number: int) -> Iterator[int]:
        offset = 0
        with Client((host, int(port))) as client:
            while True:
                records = client.fetch(f"cold-{number}", offset, partition_bytes_max=FETCH_BYTES)
                offset = next_offset(records, offset)
                if offset >= int(end):
                    offset = 0
                yield len(records)

    read_at_pace(reads, int(readers), float(pace), float(seconds))


def next_offset(records: bytes, offset: int) -> int:
    """The offset behind the last whole batch; `offset` when there is none."""
    at = 0
    while at + 61 <= len(records):
        length = int.from_bytes(records[at + 8 : at + 12], "big") + 12
        if at + length > len(records):
            break
        base = int.from_bytes(records[at : at + 8], "big")
        offset = base + int.from_bytes(records[at + 23 : at + 27], "big") + 1
        at += length
    return offset


if __name__ == "__main__":
    main()
