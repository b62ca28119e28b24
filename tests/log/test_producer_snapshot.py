"""Producer snapshots: Kafka's bytes in Kafka's order, and no damage that passes."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import CorruptSnapshotError
from stratalog.log.format import producer_snapshot
from stratalog.log.format.producer_snapshot import (
    ProducerSnapshotEntry,
    decode,
    encode,
    encode_packed,
    hash_order,
)
from stratalog.log.producers.producer_entry import ProducerEntry
from tests.support.reference_jars import SHORT_LIVED, java
from tests.support.reference_kafka import require_reference_kafka

GOLDEN = Path(__file__).parents[1] / "golden" / "dump" / "transactions"


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


entries = st.lists(
    st.builds(
        ProducerSnapshotEntry,
        signed(64),
        signed(16),
        signed(32),
        signed(64),
        signed(32),
        signed(64),
        signed(32),
        signed(64),
    ),
    max_size=5,
)


@pytest.mark.parametrize("name", ["00000000000000000003.snapshot", "00000000000000000016.snapshot"])
def test_kafkas_snapshot_is_read_and_written_the_same(tmp_path: Path, name: str) -> None:
    data = (GOLDEN / name).read_bytes()
    found = producer_snapshot.read(GOLDEN / name)
    producer_snapshot.write(tmp_path / name, found)
    assert (tmp_path / name).read_bytes() == data
    assert found[0].producer_id == 5


@given(entries=entries)
@settings(deadline=None)
def test_entries_come_back_as_written(entries: list[ProducerSnapshotEntry]) -> None:
    """Decoding what was encoded gives the same entries in the same order."""
    assert decode(encode(entries)) == entries


@given(entries=entries)
@settings(deadline=None)
def test_a_producer_packs_itself_as_its_entry_is_encoded(entries: list[ProducerSnapshotEntry]) -> None:
    """The fast way of a roll writes the bytes of the plain one."""
    producers = [ProducerEntry.from_snapshot(entry) for entry in entries]
    plain = encode([producer.to_snapshot() for producer in producers])
    assert encode_packed([producer.packed() for producer in producers]) == plain


def test_a_producer_that_has_written_nothing_packs_itself_too() -> None:
    fresh = ProducerEntry(7, 3)
    assert encode_packed([fresh.packed()]) == encode([fresh.to_snapshot()])


def test_a_snapshot_without_producers_is_ten_bytes(tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "golden" / "dump" / "append-time" / "00000000000000000005.snapshot"
    assert encode([]) == golden.read_bytes()
    assert decode(encode([])) == []


def test_every_cut_every_flipped_bit_and_every_added_byte_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000016.snapshot"
    sound = (GOLDEN / path.name).read_bytes()
    damaged = [sound[:n] for n in range(len(sound))] + [sound + b"\0"]
    damaged += [
        sound[:n] + bytes([sound[n] ^ (1 << bit)]) + sound[n + 1 :] for n in range(len(sound)) for bit in range(8)
    ]
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(CorruptSnapshotError, match=r"00000000000000000016[.]snapshot"):
            producer_snapshot.read(path)


def test_a_count_that_lies_under_a_right_crc_is_corrupt() -> None:
    import struct

    from stratalog.util.checksum import crc32c

    for count in (-1, 0, 2, 2**31 - 1):
        body = struct.pack(">i", count) + encode([ProducerSnapshotEntry(1, 0, 0, 0, 0, 0, 0, -1)])[10:]
        with pytest.raises(CorruptSnapshotError, match=f"{count} entries"):
            decode(struct.pack(">hI", 1, crc32c(body)) + body)


@pytest.mark.interop
def test_the_order_is_that_of_javas_hash_map(tmp_path: Path) -> None:
    """Producer ids put one by one into a HashMap<Long, ..> come out as `hash_order` says."""
    require_reference_kafka()
    chosen = random.Random(7)
    rows = [
        [chosen.randrange(limit) for _ in range(count)]
        for count in (1, 5, 12, 13, 24, 25, 100, 1000)
        for limit in (20, 1000, 2**33, 2**63)
    ]
    rows = [list(dict.fromkeys(row)) for row in rows]
    source = tmp_path / "Order.java"
    source.write_text(
        "import java.util.*; public class Order { public static void main(String[] a) {"
        " Scanner in = new Scanner(System.in); while (in.hasNextLine()) { Map<Long, Integer> m = new HashMap<>();"
        ' for (String s : in.nextLine().split(" ")) m.put(Long.parseLong(s), 1);'
        ' StringJoiner j = new StringJoiner(" "); for (Long k : m.keySet()) j.add(k.toString());'
        " System.out.println(j); } } }"
    )
    done = subprocess.run(
        [java(), *SHORT_LIVED, str(source)],
        input="\n".join(" ".join(map(str, row)) for row in rows),
        capture_output=True,
        text=True,
        check=True,
    )
    for row, line in zip(rows, done.stdout.splitlines(), strict=True):
        table_size = 16
        while len(row) * 4 > table_size * 3:
            table_size *= 2
        assert hash_order(row, table_size) == list(map(int, line.split()))
