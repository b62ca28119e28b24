"""Readers of cold topics in a process of their own: `ADDRESS READERS END BYTES_PER_SECOND SECONDS`.

Reader n fetches topic `cold-n` from offset 0 to END and again, at its pace. Prints a line when all have begun, and at the
end how many bytes a second they read together.
"""

from __future__ import annotations

import sys
import threading
import time

from benchmarks.support.client import Client

FETCH_BYTES = 1024 * 1024


def main() -> None:
    address, readers, end, pace, seconds = sys.argv[1:]
    host, _, port = address.rpartition(":")
    until = time.monotonic() + float(seconds)
    sizes = [0] * int(readers)
    started = threading.Barrier(int(readers) + 1)

    def read(number: int) -> None:
        offset = 0
        with Client((host, int(port))) as client:
            started.wait()
            begun = time.monotonic()
            while time.monotonic() < until:
                records = client.fetch(f"cold-{number}", offset, partition_bytes_max=FETCH_BYTES)
                sizes[number] += len(records)
                offset = next_offset(records, offset)
                if offset >= int(end):
                    offset = 0
                if float(pace):
                    time.sleep(max(0.0, begun + sizes[number] / float(pace) - time.monotonic()))

    threads = [threading.Thread(target=read, args=(number,)) for number in range(int(readers))]
    for thread in threads:
        thread.start()
    started.wait()
    print("begun", flush=True)
    for thread in threads:
        thread.join()
    print(sum(sizes) / float(seconds))


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
