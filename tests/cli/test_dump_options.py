"""What `dump` can be asked for beyond the whole of a file: a part of it, other decoders, other spellings, other
files."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from tests.cli.dump_cases import LOG_NAME
from tests.golden.dump.make import HERE

from stratalog.cli.main import run
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.testing.legacy_builder import build_legacy

Captured = pytest.CaptureFixture[bytes]
INDEX_NAME = "00000000000000000000.index"
METADATA = HERE / "__cluster_metadata"


def dump(capture: Captured, *arguments: object) -> tuple[int, list[str], list[str]]:
    status = run(["dump", *map(str, arguments)])
    out, err = capture.readouterr()
    return status, out.decode().splitlines(), err.decode().splitlines()


def triples(count: int) -> list[bytes]:
    """Batches of three records: offsets 0-2, 3-5, ..."""
    return [
        build_batch([Record(first + n, 5, b"k", b"v" * first) for n in range(3)], base_offset=first)
        for first in range(0, 3 * count, 3)
    ]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Ten batches of three records, without an index."""
    path = tmp_path / LOG_NAME
    path.write_bytes(b"".join(triples(10)))
    return path


def write_index(log: Path, slots: list[int], *, large: bool = False) -> Path:
    ends = [sum(map(len, triples(10)[:n])) for n in range(10)]
    form = ">iq" if large else ">ii"
    path = log.with_name(INDEX_NAME)
    path.write_bytes(b"".join(struct.pack(form, 3 * n + 2, ends[n]) for n in slots))
    return path


def base_offsets(lines: list[str]) -> list[int]:
    return [int(line.split()[1]) for line in lines if line.startswith("baseOffset: ")]


@pytest.mark.parametrize("index", ["none", "legacy", "large", "wrong"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--from", 0), range(0, 30, 3)),
        (("--from", 12), range(12, 30, 3)),
        (("--from", 14), range(12, 30, 3)),  # whole batches: 14 lies in the batch of 12
        (("--from", 30), ()),
        (("--to", 12), range(0, 12, 3)),
        (("--to", 13), range(0, 15, 3)),
        (("--from", 7, "--to", 16), (6, 9, 12, 15)),
        (("--from", 20, "--to", 5), ()),
    ],
)
def test_a_range_of_offsets_is_printed_in_whole_batches(
    capfdbinary: Captured, log: Path, index: str, options: tuple[object, ...], expected: range
) -> None:
    if index == "wrong":
        log.with_name(INDEX_NAME).write_bytes(struct.pack(">iiii", 5, 40, 11, 90))
    elif index != "none":
        write_index(log, [2, 4, 7], large=index == "large")
    status, out, err = dump(capfdbinary, log, *options)
    assert (status, err) == (0, [])
    assert base_offsets(out) == list(expected)


def test_a_range_of_positions_begins_with_the_first_batch_from_there_on(capfdbinary: Captured, log: Path) -> None:
    sizes = [len(batch) for batch in triples(10)]
    second, fourth = sizes[0], sum(sizes[:3])
    for start, expected in ((second, 3), (second - 1, 3), (second + 1, 6)):
        assert base_offsets(dump(capfdbinary, log, "--from", f"@{start}", "--to", f"@{fourth}")[1])[0] == expected
    out = dump(capfdbinary, log, "--from", f"@{second}", "--to", f"@{fourth}")[1]
    assert base_offsets(out) == [3, 6]
    assert f" position: {second} " in out[2]
    assert base_offsets(dump(capfdbinary, log, "--to", f"@{fourth + 1}")[1]) == [0, 3, 6, 9]


def test_a_position_behind_damage_can_be_given(capfdbinary: Captured, log: Path) -> None:
    data = bytearray(log.read_bytes())
    sizes = [len(batch) for batch in triples(10)]
    data[sizes[0] + 8 : sizes[0] + 12] = b"\xff" * 4
    log.write_bytes(data)
    status, out, _ = dump(capfdbinary, log)
    assert (status, base_offsets(out)) == (1, [0])
    status, out, _ = dump(capfdbinary, log, "--from", f"@{sum(sizes[:2])}")
    assert (status, base_offsets(out)) == (0, list(range(6, 30, 3)))


def test_a_range_behind_4_gib_is_found_by_the_index(capfdbinary: Captured, tmp_path: Path) -> None:
    position = 5 * 2**30
    with (tmp_path / LOG_NAME).open("wb") as file:
        file.seek(position)
        file.write(b"".join(triples(10)[3:]))
    (tmp_path / INDEX_NAME).write_bytes(struct.pack(">iq", 11, position))
    status, out, err = dump(capfdbinary, tmp_path / LOG_NAME, "--from", 12, "--deep-iteration")
    assert (status, err) == (0, [])
    assert base_offsets(out) == list(range(12, 30, 3))
    assert f" position: {position + len(triples(10)[3])} " in out[2]


def test_a_range_holds_for_the_entries_of_indexes(capfdbinary: Captured, log: Path) -> None:
    index = write_index(log, [2, 4, 7])
    assert [line.split()[1] for line in dump(capfdbinary, index, "--from", 9, "--to", 23)[1][1:]] == ["14"]
    times = log.with_name("00000000000000000000.timeindex")
    times.write_bytes(struct.pack(">qiqi", 5, 2, 6, 8))
    assert dump(capfdbinary, times, "--to", 5)[1][1:] == ["timestamp: 5 offset: 2"]
    aborted = HERE / "transactions" / "00000000000000000003.txnindex"
    whole = dump(capfdbinary, aborted)[1]
    last_offset = int(whole[1].split()[7])
    assert dump(capfdbinary, aborted, "--from", last_offset + 1)[1] == [whole[0], *whole[2:]]


@pytest.mark.parametrize("bound", ["x", "-1", "@", "@x", "1.5", ""])
def test_a_bound_that_is_none_is_one_line_and_exit_code_2(capfdbinary: Captured, log: Path, bound: str) -> None:
    for option in ("--from", "--to"):
        status, out, err = dump(capfdbinary, log, f"{option}={bound}")
        assert (status, out, len(err)) == (2, [], 1)
        assert f"{option} {bound}: expected an offset" in err[0]


def test_max_bytes_counts_from_where_the_range_begins(capfdbinary: Captured, log: Path) -> None:
    size = len(triples(10)[4]) + len(triples(10)[5])
    status, out, err = dump(capfdbinary, log, "--from", 12, "--max-bytes", size)
    assert (status, base_offsets(out), err) == (0, [12, 15], [])


def test_files_may_be_named_as_kafkas_tool_wants_it(capfdbinary: Captured, log: Path) -> None:
    index = write_index(log, [2])
    expected = dump(capfdbinary, log, index)
    assert dump(capfdbinary, "--files", f"{log},{index}") == expected
    assert dump(capfdbinary, "--files", log, "--files", index) == expected
    assert dump(capfdbinary, log, "--files", index) == expected
    status, out, err = dump(capfdbinary, "--deep-iteration")
    assert (status, out, err) == (2, [], ["stratalog: no files given (see stratalog dump --help)"])


def test_a_larger_batch_than_max_message_size_is_reported(capfdbinary: Captured, log: Path) -> None:
    index = write_index(log, [2])
    size = len(triples(10)[2])
    assert dump(capfdbinary, index, "--max-message-size", size)[0] == 0
    status, _, err = dump(capfdbinary, index, "--max-message-size", size - 1)
    assert status == 1
    assert f"within --max-message-size ({size} bytes)" in err[0]


def test_numbers_are_decoded_by_kafkas_decoders(capfdbinary: Captured, tmp_path: Path) -> None:
    log = tmp_path / LOG_NAME
    rows = [(struct.pack(">i", -7), struct.pack(">q", 2**40)), (b"\0", None), (None, b"12345678")]
    log.write_bytes(build_batch([Record(n, 5, key, value) for n, (key, value) in enumerate(rows)]))
    package = "org.apache.kafka.tools.api."
    status, out, _ = dump(
        capfdbinary,
        log,
        "--skip-record-metadata",
        "--key-decoder-class",
        f"{package}IntegerDecoder",
        "--value-decoder-class",
        f"{package}LongDecoder",
    )
    assert status == 0
    assert out[3] == "| key: -7 payload: 1099511627776"
    assert out[4].startswith("| key: Error at offset 1, skipping.")
    assert out[5] == f"| payload: {int.from_bytes(b'12345678', 'big')}"
    out = dump(capfdbinary, log, "--skip-record-metadata", "--value-decoder-class", f"{package}DefaultDecoder")[1]
    assert out[5] == "| payload: MTIzNDU2Nzg="


def test_a_python_function_decodes(capfdbinary: Captured, log: Path) -> None:
    out = dump(capfdbinary, log, "--key-decoder-class", "binascii:hexlify", "--to", 1, "--json")[1]
    assert json.loads(out[3])["key"] == str(b"6b")
    assert json.loads(out[3])["payload"] == ""


@pytest.mark.parametrize("name", ["com.example.MyDecoder", "no_such_module:f", "json:no_such", "json:__name__", ":"])
def test_a_decoder_that_cannot_be_had_is_refused_with_what_to_do(capfdbinary: Captured, log: Path, name: str) -> None:
    status, out, err = dump(capfdbinary, log, "--value-decoder-class", name)
    assert (status, out, len(err)) == (2, [], 1)
    assert name in err[0]
    if name == "com.example.MyDecoder":
        assert "Java classes cannot be loaded" in err[0]
        assert "module:function" in err[0]


def test_two_decoders_at_once_are_refused(capfdbinary: Captured, log: Path) -> None:
    status, out, err = dump(capfdbinary, log, "--offsets-decoder", "--cluster-metadata-decoder")
    assert (status, out, len(err)) == (2, [], 1)


def test_what_is_no_metadata_record_is_reported_in_its_place(capfdbinary: Captured, tmp_path: Path) -> None:
    values = [b"", b"\0\2\0", b"\2\2\0", b"\1\x63\0", b"\1\2\x63", b"\1\x14\0\0", b"\1\x14\0\0junk", None]
    log = tmp_path / LOG_NAME
    log.write_bytes(build_batch([Record(n, 5, None, value) for n, value in enumerate(values)]))
    status, out, _ = dump(capfdbinary, log, "--cluster-metadata-decoder", "--skip-record-metadata")
    assert status == 0
    reported = out[3:]
    assert reported[0] == "| payload: Error at 0, skipping. Error while reading frame version"
    assert "frame version 0" in reported[1]
    assert "unknown frame version 2(only frame version 1 is supported)" in reported[2]
    assert "Unknown metadata id 99" in reported[3]
    assert "Failed to deserialize record with type TOPIC_RECORD" in reported[4]
    assert reported[5] == '| payload: {"type":"NO_OP_RECORD","version":0,"data":{}}'
    assert "bytes are left over" in reported[6]


def test_what_is_no_remote_metadata_is_reported_in_its_place(capfdbinary: Captured, tmp_path: Path) -> None:
    log = tmp_path / LOG_NAME
    log.write_bytes(build_batch([Record(n, 5, None, value) for n, value in enumerate((b"\x7f\x7f", b"", None))]))
    status, out, _ = dump(capfdbinary, log, "--remote-log-metadata-decoder")
    assert status == 0
    assert [f"payload: Error at offset {n}, skipping." in line for n, line in enumerate(out[3:])] == [True] * 3


def test_a_file_that_may_not_be_read_is_one_line_and_exit_code_2(
    capfdbinary: Captured, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(log))

    monkeypatch.setattr("stratalog.util.filesystem.FileSystem.open", refuse)
    assert dump(capfdbinary, log, "--remote-log-metadata-decoder") == (2, [], [f"stratalog: {log}: Permission denied"])


def test_a_control_record_that_is_cut_is_reported_with_its_batch(capfdbinary: Captured, tmp_path: Path) -> None:
    log = tmp_path / LOG_NAME
    log.write_bytes(build_batch([Record(0, 5, struct.pack(">hh", 0, 3), b"\0")], is_control=True))
    status, _, err = dump(capfdbinary, log, "--deep-iteration")
    assert status == 1
    assert "SnapshotHeaderRecord" in err[0]


def test_a_snapshot_of_the_metadata_log_is_json_too(capfdbinary: Captured) -> None:
    path = next(METADATA.glob("*27-*.checkpoint"))
    status, out, err = dump(capfdbinary, path, "--cluster-metadata-decoder", "--json")
    assert (status, err) == (0, [])
    lines = [json.loads(line) for line in out]
    assert (lines[0]["kind"], lines[1]["snapshotEndOffset"], lines[1]["epoch"]) == ("checkpoint", 27, 1)
    assert lines[3]["control"].startswith("SnapshotHeader {")
    assert json.loads(lines[5]["payload"])["type"] == "FEATURE_LEVEL_RECORD"


def test_small_files_of_a_data_directory_are_printed_entry_by_entry(capfdbinary: Captured, tmp_path: Path) -> None:
    for name, content in (
        ("meta.properties", "#\ncluster.id=abc\nnode.id=1\nversion=1\n"),
        (".kafka_cleanshutdown", '{"version":0,"brokerEpoch":-1}'),
        ("quorum-state", '{"leaderId":1,"leaderEpoch":7,"data_version":0}'),
        ("replication-offset-checkpoint", "0\n1\norders 3 17\n"),
        ("cleaner-offset-checkpoint", "0\n0\n"),
    ):
        (tmp_path / name).write_text(content)
    paths = sorted(tmp_path.iterdir())
    status, out, err = dump(capfdbinary, *paths)
    assert (status, err) == (0, [])
    assert [line for line in out if not line.startswith("Dumping")] == [
        "version: 0 brokerEpoch: -1",
        "cluster.id: abc",
        "node.id: 1",
        "version: 1",
        "leaderId: 1 leaderEpoch: 7 data_version: 0",
        "topic: orders partition: 3 offset: 17",
    ]
    kinds = [json.loads(line) for line in dump(capfdbinary, *paths, "--json")[1]]
    assert [line["kind"] for line in kinds if line["type"] == "file"] == [
        "kafka_cleanshutdown",
        "cleaner-offset-checkpoint",
        "meta.properties",
        "quorum-state",
        "replication-offset-checkpoint",
    ]
    for path in paths:
        path.write_bytes(b"[\xff")
    status, _, err = dump(capfdbinary, *paths)
    assert (status, len(err)) == (1, len(paths))


def test_what_was_cut_from_a_log_is_printed_as_a_log(capfdbinary: Captured, log: Path) -> None:
    for name in (f"{LOG_NAME}.4096.cut", f"{LOG_NAME}.cut", f"{LOG_NAME}.deleted"):
        cut = log.with_name(name)
        cut.write_bytes(log.read_bytes())
        status, out, err = dump(capfdbinary, cut)
        assert (status, err) == (0, [])
        assert base_offsets(out) == list(range(0, 30, 3))


def test_old_messages_and_batches_may_follow_each_other(
    capfdbinary: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The native loops hand messages of formats 0 and 1 to the plain way, and go on behind them."""
    log = tmp_path / LOG_NAME
    parts = [
        build_legacy([Record(n, 5, b"key", b"value") for n in range(3)], magic=1),
        build_batch([Record(n, 5, b"key", b"value") for n in range(3, 6)], base_offset=3),
        build_legacy([Record(6, -1, None, b"old")], magic=0),
    ]
    log.write_bytes(b"".join(parts))
    plain = dump(capfdbinary, log, "--print-data-log")
    assert plain[0] == 0
    assert sum(" magic: 1 " in line for line in plain[1]) == 3
    assert "offset: 6 position: " in plain[1][-2]
    assert "NoTimestampType: -1" in plain[1][-2]
    monkeypatch.setattr("stratalog.cli.dump.log_dump.BULK_SIZE_MIN", 0)
    assert dump(capfdbinary, log, "--print-data-log") == plain
    lines = [json.loads(line) for line in dump(capfdbinary, log, "--print-data-log", "--json")[1]]
    assert [line["magic"] for line in lines if line["type"] == "batch"] == [1, 1, 1, 2, 0]
