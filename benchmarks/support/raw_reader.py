"""Readers of the objects that cold topics lie in, no broker between: `URL OPTIONS READERS BYTES_PER_SECOND SECONDS`.

Reader n gets the records of topic `cold-n` in ranges, from the first segment on and again, at its pace. OPTIONS are
those of the store, as JSON. Prints what `cold_reader` prints.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from benchmarks.support.cold_reader import FETCH_BYTES
from benchmarks.support.pace import read_at_pace
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.remote.storage.object_store import ObjectStore


def main() -> None:
    url, options, readers, pace, seconds = sys.argv[1:]
    store = ObjectStore.from_url(url, json.loads(options))
    topics = {f"cold-{number}": number for number in range(int(readers))}
    segments: dict[int, list[tuple[str, int]]] = {}
    for manifest in list_remote_segments(store, list(topics)):
        place = manifest.key(), manifest.segment_size_in_bytes
        segments.setdefault(topics[manifest.topic], []).append(place)

    def reads(number: int) -> Iterator[int]:
        while True:
            for key, size in segments[number]:
                for start in range(0, size, FETCH_BYTES):
                    yield len(memoryview(store.get_range(key, start, min(start + FETCH_BYTES, size))))

    read_at_pace(reads, int(readers), float(pace), float(seconds))


if __name__ == "__main__":
    main()
