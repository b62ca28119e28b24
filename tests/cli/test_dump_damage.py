"""`dump` of what is damaged, missing or of another kind: the right exit code, one clear line, never a traceback."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from tests.cli.dump_cases import LOG_NAME, batches, with_right_crc, write_log
from tests.golden.dump.make import HERE

from stratalog.cli.main import run
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record

Captured = pytest.CaptureFixture[bytes]
INDEX_NAME = "00000000000000000000.index"
TIME_INDEX_NAME = "00000000000000000000.timeindex"


def dump(capture: Captured, *arguments: object) -> tuple[int, list[str], list[str]]:
    status = run(["dump", *map(str, arguments)])
    out, err = capture.readouterr()
    return status, out.decode().splitlines(), err.decode().splitlines()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / LOG_NAME
    path.write_bytes(b"".join(build_batch([Record(n, 100 + n, b"k", b"v")], base_offset=n) for n in range(4)))
    return path


def test_a_missing_file_is_one_line_and_exit_code_2(capfdbinary: Captured, tmp_path: Path, log: Path) -> None:
    missing = tmp_path / "00000000000000000009.log"
    assert dump(capfdbinary, log, missing) == (2, [], [f"stratalog: {missing}: No such file or directory"])


@pytest.mark.parametrize("name", ["notes.txt", "7.log", "00000000000000000000", "x.index", "no-dot"])
def test_another_kind_of_file_is_passed_over_and_exit_code_2(
    capfdbinary: Captured, tmp_path: Path, log: Path, name: str
) -> None:
    unknown = tmp_path / name
    unknown.write_bytes(b"?")
    _, expected, _ = dump(capfdbinary, log)
    status, out, err = dump(capfdbinary, unknown, log)
    assert (status, err) == (2, [f"Ignoring unknown file {unknown}"])
    assert out == [f"Dumping {unknown}", *expected]


def test_a_directory_is_one_line_and_exit_code_2(capfdbinary: Captured, tmp_path: Path) -> None:
    directory = tmp_path / LOG_NAME
    directory.mkdir()
    status, out, err = dump(capfdbinary, directory)
    assert (status, out) == (2, [])
    assert err == [f"stratalog: {directory}: is a directory; give the files in it"]


def test_no_file_and_two_decoders_are_wrong_usage(capfdbinary: Captured, log: Path) -> None:
    assert dump(capfdbinary)[0] == 2
    status, out, err = dump(capfdbinary, log, "--offsets-decoder", "--transaction-log-decoder")
    assert (status, out, len(err)) == (2, [], 1)
    assert dump(capfdbinary, log, "--store-option", "endpoint")[0] == 2


def test_a_sound_log_has_exit_code_0(capfdbinary: Captured, log: Path) -> None:
    status, out, err = dump(capfdbinary, log)
    assert (status, len(out), err) == (0, 6, [])


def test_a_cut_log_prints_its_whole_batches_and_tells_the_rest(capfdbinary: Captured, log: Path) -> None:
    data = log.read_bytes()
    size = len(data) // 4
    for cut in range(len(data)):
        log.write_bytes(data[:cut])
        status, out, err = dump(capfdbinary, log, "--deep-iteration")
        whole, rest = divmod(cut, size)
        assert sum(line.startswith("baseOffset") for line in out) == whole
        assert status == (1 if rest else 0)
        if rest:
            assert out[-1] == f"Found {rest} invalid bytes at the end of {LOG_NAME}"
            assert err == [f"{log}: no whole batch at position {whole * size}, where {rest} bytes are left"]


def test_any_damaged_byte_is_reported_or_outside_every_check(capfdbinary: Captured, log: Path) -> None:
    """Every byte under a CRC that changes is found; batch and position are named."""
    data = log.read_bytes()
    size = len(data) // 4
    for at in range(size, 2 * size):
        log.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        status, out, err = dump(capfdbinary, log, "--print-data-log")
        assert out[:2] == [f"Dumping {log}", "Log starting offset: 0"]
        is_covered = at - size >= 16 or 8 <= at - size < 12  # base offset and leader epoch are outside the CRC
        assert status == (1 if is_covered else 0)
        if is_covered:
            assert str(log) in err[0]
            assert f"position {size}" in err[0]


def test_a_wrong_crc_does_not_end_the_dump(capfdbinary: Captured, log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    data[40] ^= 1
    log.write_bytes(data)
    status, out, err = dump(capfdbinary, log)
    assert status == 1
    assert [line.rpartition(" ")[2] for line in out[2:]] == ["false", "true", "true", "false"]
    assert len(err) == 2


def test_malformed_records_under_a_right_crc_are_reported_with_their_batch(
    capfdbinary: Captured, tmp_path: Path
) -> None:
    good = build_batch([Record(0, 5, None, b"v"), Record(1, 5, None, b"v")], base_offset=0)
    bad = with_right_crc(good[:-1] + b"\x7f")
    (tmp_path / LOG_NAME).write_bytes(bad + good)
    status, out, err = dump(capfdbinary, tmp_path / LOG_NAME, "--deep-iteration")
    assert status == 1
    assert "batch at position 0 (base offset 0)" in err[0]
    assert sum(line.startswith("baseOffset") for line in out) == 2


def test_an_unknown_codec_is_reported_and_the_rest_printed(capfdbinary: Captured, tmp_path: Path) -> None:
    good = build_batch([Record(0, 5, None, b"v")], base_offset=0)
    bad = with_right_crc(good[:22] + bytes([good[22] | 6]) + good[23:])
    (tmp_path / LOG_NAME).write_bytes(bad + good)
    status, out, err = dump(capfdbinary, tmp_path / LOG_NAME, "--deep-iteration")
    assert (status, len(err)) == (1, 1)
    assert "codec" in err[0]
    assert sum(line.startswith("baseOffset") for line in out) == 2


def test_an_unknown_message_format_is_reported_with_its_position(capfdbinary: Captured, tmp_path: Path) -> None:
    good = build_batch([Record(0, 5, None, b"v")], base_offset=0)
    (tmp_path / LOG_NAME).write_bytes(good + good[:16] + b"\x03" + good[17:])
    status, out, err = dump(capfdbinary, tmp_path / LOG_NAME)
    assert (status, len(out)) == (1, 3)
    assert f"position {len(good)}: magic 3 is unknown" in err[0]


def test_zeros_behind_the_batches_are_reported_with_their_position(capfdbinary: Captured, log: Path) -> None:
    size = log.stat().st_size
    with log.open("ab") as file:
        file.write(bytes(1000))
    status, out, err = dump(capfdbinary, log)
    assert (status, len(out), len(err)) == (1, 6, 1)
    assert f"position {size}:" in err[0]


def test_gaps_between_offsets_are_reported_but_are_no_damage(capfdbinary: Captured, tmp_path: Path) -> None:
    path = tmp_path / LOG_NAME
    path.write_bytes(b"".join(build_batch([Record(n, 5, None, None)], base_offset=n) for n in (0, 1, 5, 6, 9)))
    status, _, err = dump(capfdbinary, path, "--deep-iteration")
    assert status == 0
    assert err == [f"Non-consecutive offsets in {path}", "  1 is followed by 5", "  6 is followed by 9"]
    assert dump(capfdbinary, path)[2] == []


def test_max_bytes_ends_quietly_at_the_last_whole_batch(capfdbinary: Captured, log: Path) -> None:
    status, out, err = dump(capfdbinary, log, "--max-bytes", log.stat().st_size - 1)
    assert (status, len(out), err) == (0, 5, [])


def test_an_index_that_points_elsewhere_is_reported(capfdbinary: Captured, log: Path) -> None:
    size = log.stat().st_size // 4
    index = log.with_name(INDEX_NAME)
    index.write_bytes(struct.pack(">iiiiii", 1, size, 3, 2 * size, 4, 10**6))
    status, out, err = dump(capfdbinary, index)
    assert status == 1
    assert out[1:] == [
        f"offset: 1 position: {size}",
        f"offset: 3 position: {2 * size}",
        "offset: 4 position: 1000000",
    ]
    assert f"{index}: entry 2: no batch at position 1000000 of {log}" in err
    assert err[-2:] == [f"Mismatches in :{index}", "  Index offset: 3, log offset: 2"]
    assert dump(capfdbinary, index, "--verify-index-only")[:2] == (1, [f"Dumping {index}"])


def test_an_index_in_use_is_printed_up_to_its_zeros(capfdbinary: Captured, log: Path) -> None:
    index = log.with_name(INDEX_NAME)
    index.write_bytes(struct.pack(">ii", 1, log.stat().st_size // 4) + bytes(8 * 100))
    assert dump(capfdbinary, index) == (
        0,
        [f"Dumping {index}", f"offset: 1 position: {log.stat().st_size // 4}"],
        [],
    )


def test_an_index_without_its_log_is_printed_and_cannot_be_verified(capfdbinary: Captured, tmp_path: Path) -> None:
    index = tmp_path / INDEX_NAME
    index.write_bytes(struct.pack(">ii", 1, 100))
    status, out, err = dump(capfdbinary, index)
    assert (status, out[1:]) == (0, ["offset: 1 position: 100"])
    assert err == [f"{index}: there is no {LOG_NAME} in the same directory to verify it against"]
    status, _, err = dump(capfdbinary, index, "--verify-index-only")
    assert (status, len(err)) == (2, 1)


def test_an_index_without_its_log_that_ascends_either_way_is_read_as_legacy_with_a_warning(
    capfdbinary: Captured, tmp_path: Path
) -> None:
    index = tmp_path / INDEX_NAME
    index.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in ((0, 0), (20, 4096), (41, 8192))))
    status, out, err = dump(capfdbinary, index)
    assert (status, out[1:]) == (
        0,
        ["offset: 0 position: 0", "offset: 20 position: 4096", "offset: 41 position: 8192"],
    )
    assert len(err) == 2
    assert "24 bytes are a multiple of 8 and of 12, and the entries ascend read either way; read as legacy" in err[1]


def test_an_index_of_odd_size_fails_the_sanity_check(capfdbinary: Captured, log: Path) -> None:
    index = log.with_name(INDEX_NAME)
    index.write_bytes(struct.pack(">ii", 1, log.stat().st_size // 4) + b"\0\0\0")
    status, out, err = dump(capfdbinary, index, "--index-sanity-check")
    assert (status, len(out)) == (1, 1)
    assert "11 bytes are not a multiple" in err[0]
    assert dump(capfdbinary, index)[0] == 1


def test_a_large_format_index_is_read_with_positions_beyond_4_gib(capfdbinary: Captured, tmp_path: Path) -> None:
    position = 5 * 2**30
    with (tmp_path / LOG_NAME).open("wb") as file:
        file.seek(position)
        file.write(build_batch([Record(n, 5, None, None) for n in range(7, 10)], base_offset=7))
    index = tmp_path / INDEX_NAME
    index.write_bytes(struct.pack(">iq", 9, position))
    assert dump(capfdbinary, index) == (0, [f"Dumping {index}", f"offset: 9 position: {position}"], [])


def test_a_time_index_that_lies_is_reported(capfdbinary: Captured, log: Path) -> None:
    path = log.with_name(TIME_INDEX_NAME)
    path.write_bytes(struct.pack(">qiqiqiqi", 100, 0, 150, 1, 102, 2, 103, 9))
    status, out, err = dump(capfdbinary, path)
    assert status == 1
    assert out[1:] == [f"timestamp: {t} offset: {o}" for t, o in ((100, 0), (150, 1), (102, 2), (103, 9))]
    assert err == [
        f"Found timestamp mismatch in :{path}",
        "  Index timestamp: 150, log timestamp: 101",
        f"Found out of order timestamp in :{path}",
        "  Index timestamp: 102, Previously indexed timestamp: 150",
        f"The following indexed offsets are not found in :{path}",
        "Indexed offset: 9, found log offset: -1",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000003.txnindex",
        "00000000000000000016.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ],
)
def test_small_files_cut_anywhere_never_end_in_a_traceback(capfdbinary: Captured, tmp_path: Path, name: str) -> None:
    data = (HERE / "transactions" / name).read_bytes()
    path = tmp_path / name
    for size in range(len(data)):
        path.write_bytes(data[:size])
        status, out, err = dump(capfdbinary, path)
        assert out[0] == f"Dumping {path}"
        assert status in (0, 1)
        assert (status == 1) == bool(err)
        assert not any("Traceback" in line or "internal error" in line for line in err)


def test_random_bytes_are_never_a_traceback(capfdbinary: Captured, tmp_path: Path) -> None:
    import random

    chosen = random.Random(11)
    names = (
        LOG_NAME,
        INDEX_NAME,
        TIME_INDEX_NAME,
        "00000000000000000000.txnindex",
        "00000000000000000000.snapshot",
        "replication-offset-checkpoint",
    )
    for _ in range(40):
        for name in names:
            (tmp_path / name).write_bytes(chosen.randbytes(chosen.randrange(300)))
        for option in ("--deep-iteration", "--index-sanity-check", "--json"):
            status, _, err = dump(capfdbinary, *(tmp_path / name for name in names), option)
            assert status in (0, 1)
            assert not any("Traceback" in line or "internal error" in line for line in err)


def test_a_url_is_read_like_a_path(capfdbinary: Captured, tmp_path: Path) -> None:
    from stratalog.remote.storage.object_store import ObjectStore

    path = write_log(tmp_path / "x", seed=5)
    url = "memory://dumped/orders-AAAAAAAAAAAAAAAAAAAAAA/0"
    key = "00000000000000000000-BBBBBBBBBBBBBBBBBBBBBB.log"
    ObjectStore.from_url(url).put(key, path.read_bytes())
    _, by_path, _ = dump(capfdbinary, path, "--print-data-log")
    status, by_url, _ = dump(capfdbinary, f"{url}/{key}", "--print-data-log")
    assert status == 0
    assert by_url[0] == f"Dumping {url}/{key}"
    assert by_url[1:] == by_path[1:]
    assert dump(capfdbinary, f"file://{path}", "--print-data-log")[1][1:] == by_path[1:]
    status, out, err = dump(capfdbinary, "memory://dumped/orders/0/00000000000000000000-BBBBBBBBBBBBBBBBBBBBBB.log")
    assert (status, out, len(err)) == (2, [], 1)
    status, out, err = dump(capfdbinary, f"file://{tmp_path}/none/{LOG_NAME}")
    assert (status, out, len(err)) == (2, [], 1)
    assert not (tmp_path / "none").exists()


def test_json_is_one_object_a_line_with_nothing_lost(capfdbinary: Captured, tmp_path: Path) -> None:
    log = tmp_path / LOG_NAME
    log.write_bytes(
        build_batch(
            [Record(0, 5, b"k", b"\xff\x00", (("h", b"\x80"), ("g", None))), Record(1, 6, None, b"text")],
            producer_id=3,
            producer_epoch=1,
            base_sequence=9,
        )
        + b"??"
    )
    snapshot = HERE / "transactions" / "00000000000000000003.snapshot"
    status, out, err = dump(capfdbinary, log, snapshot, "--print-data-log", "--json")
    assert status == 1
    assert len(err) == 1
    lines = [json.loads(line) for line in out]
    assert [line["type"] for line in lines] == [
        "file",
        "note",
        "batch",
        "record",
        "record",
        "note",
        "problem",
        "file",
        "producer",
    ]
    assert lines[0]["kind"] == "log"
    assert lines[6]["text"] == err[0]
    assert lines[2]["producerId"] == 3
    assert lines[2]["isvalid"] is True
    assert lines[2]["deleteHorizonMs"] is None
    assert lines[3]["payloadBase64"] == "/wA="
    assert lines[3]["headers"] == [{"key": "h", "valueBase64": "gA=="}, {"key": "g", "value": None}]
    assert (lines[4]["key"], lines[4]["payload"], lines[4]["sequence"]) == (None, "text", 10)
    assert lines[8]["currentTxnFirstOffset"] == 0
    assert lines[8]["lastBatch"]["lastSequence"] == 2


def test_every_log_of_the_cases_is_valid_json_and_as_many_lines_as_text(capfdbinary: Captured, tmp_path: Path) -> None:
    for seed in range(5):
        path = tmp_path / LOG_NAME
        path.write_bytes(b"".join(batches(seed, 10)))
        text = dump(capfdbinary, path, "--print-data-log")[1]
        lines = dump(capfdbinary, path, "--print-data-log", "--json")[1]
        kinds = [json.loads(line)["type"] for line in lines]
        assert kinds.count("batch") == sum(line.startswith("baseOffset: ") for line in text) == 10
