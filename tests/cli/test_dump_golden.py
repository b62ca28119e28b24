"""`dump` prints files that Kafka wrote as kafka-dump-log printed them."""

from __future__ import annotations

import pytest
from tests.golden.dump.make import DUMPS, HERE

from stratalog.cli.main import run


@pytest.mark.parametrize("name", DUMPS)
def test_the_text_is_that_of_kafka_dump_log(name: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    topic, suffixes, options = DUMPS[name]
    files = [str(path) for suffix in suffixes for path in sorted((HERE / topic).glob(f"*{suffix}"))]
    assert run(["dump", *files, *options]) == 0
    printed, complaints = capfdbinary.readouterr()
    expected = (HERE / "expected" / f"{name}.txt").read_text(encoding="utf-8")
    assert printed.decode().replace(str(HERE), "DIR") == expected
    assert complaints == b""


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("option", ["--deep-iteration", "--print-data-log"])
def test_the_native_loops_print_the_same_text(
    codec: str, option: str, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratalog.cli.dump.log_dump.BULK_SIZE_MIN", 0)
    files = [str(path) for path in sorted((HERE / codec).glob("*.log"))]
    assert run(["dump", *files, option]) == 0
    name = f"{codec}-{'deep' if option == '--deep-iteration' else 'data'}"
    expected = (HERE / "expected" / f"{name}.txt").read_text(encoding="utf-8")
    assert capfdbinary.readouterr().out.decode().replace(str(HERE), "DIR") == expected


def test_checkpoints_are_printed_entry_by_entry(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    files = [str(HERE / "none" / name) for name in ("leader-epoch-checkpoint", "partition.metadata")]
    assert run(["dump", *files]) == 0
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert lines[0].startswith("Dumping ")
    assert lines[1] == "epoch: 0 startOffset: 0"
    assert lines[3].startswith("version: 0 topicId: ")
