"""What a job keeps and what it says: documents whole or not at all, tables for people and JSON for machines."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from stratalog.cli.options import key_values
from stratalog.cli.spark.session import SessionOptions, _connect
from stratalog.errors import UsageError
from stratalog.jobs.ledger import Ledger, State
from stratalog.jobs.report import Column, Report, Unit, shown, size_text, time_text
from stratalog.testing.clock import ManualClock


@pytest.mark.parametrize("location", ["{}/state", "file://{}/state", "memory://state"])
def test_documents_are_kept_by_name_and_replaced_whole(tmp_path: Path, location: str) -> None:
    state = State(location.format(tmp_path))
    assert (state.load("a"), state.names()) == (None, [])
    state.save("a", {"done": [1, 2]})
    state.save("b", 7)
    state.save("a", {"done": [1, 2, 3]})
    assert state.load("a") == {"done": [1, 2, 3]}
    assert state.names() == ["a", "b"]
    state.delete("b")
    state.delete("b")
    assert state.names() == ["a"]


def test_a_damaged_document_is_named_with_what_to_do(tmp_path: Path) -> None:
    state = State(tmp_path)
    (tmp_path / "a.json").write_bytes(b'{"done": [')
    with pytest.raises(UsageError, match=r"a\.json: not a document of a job .* remove it to start again"):
        state.load("a")
    with pytest.raises(ValueError, match="not a valid document name"):
        state.save("../a", 1)


def test_a_ledger_is_saved_now_and_then_and_at_the_end(tmp_path: Path) -> None:
    state, clock = State(tmp_path), ManualClock()
    with Ledger(state, "audit", period=10, clock=clock) as ledger:
        ledger.add("one", 1)
        assert state.load("audit") is None
        clock.advance(11_000)
        ledger.add("two", 2)
        assert state.load("audit") == {"one": 1, "two": 2}
        ledger.add("three", 3)
    again = Ledger(state, "audit")
    assert ("three" in again, again.get("two"), again.get("none")) == (True, 2, None)


def test_a_ledger_without_a_state_only_remembers() -> None:
    with Ledger(None, "audit") as ledger:
        ledger.add("one", 1)
        assert ledger.get("one") == 1


REPORT = Report(
    "Things",
    [Column("name"), Column("size_of_it", Unit.BYTES), Column("at", Unit.TIME), Column("sound")],
    [["a", 2048, 0, True], ["b", None, None, False]],
    {"things": 2, "total_bytes": 2048},
)


def test_a_report_is_one_line_of_json_or_lines_for_a_pipe() -> None:
    out = io.StringIO()
    REPORT.print(as_json=True, file=out)
    assert out.getvalue().count("\n") == 1
    assert json.loads(out.getvalue()) == {
        "title": "Things",
        "rows": [
            {"name": "a", "size_of_it": 2048, "at": 0, "sound": True},
            {"name": "b", "size_of_it": None, "at": None, "sound": False},
        ],
        "totals": {"things": 2, "total_bytes": 2048},
    }
    out = io.StringIO()
    REPORT.print(file=out)
    assert out.getvalue().splitlines() == [
        "Things",
        "name\tsize of it\tat\tsound",
        "a\t2 KiB\t1970-01-01 00:00:00Z\tyes",
        "b\t\t\tno",
        "things: 2, total bytes: 2 KiB",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_report_is_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = Terminal()
    REPORT.print(file=out)
    headings = next(line for line in out.getvalue().splitlines() if "size of it" in line)
    assert "sound" in headings
    assert "2 KiB" in out.getvalue()


def test_a_row_is_a_paragraph_where_a_table_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one letter under the other."""
    monkeypatch.setenv("COLUMNS", "80")
    columns = [Column(f"number_{each}") for each in range(8)]
    path = "/a/directory/" + "x" * 30
    report = Report("Found", [*columns, Column("place"), Column("nothing")], [[*range(8), path, None]])
    out = Terminal()
    report.print(file=out)
    lines = [line.rstrip() for line in out.getvalue().splitlines() if line.strip()]
    assert lines[1].startswith("number 0: 0, number 1: 1, ")
    assert lines[-1] == f"  place: {path}"
    assert "nothing" not in out.getvalue()
    monkeypatch.setenv("COLUMNS", "160")
    out = Terminal()
    report.print(file=out)
    assert "number 0: " not in out.getvalue()


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1 GiB"), (5 << 50, "5 PiB")],
)
def test_sizes_have_three_digits_and_a_unit(size: int, text: str) -> None:
    assert size_text(size) == text


def test_times_are_utc_and_what_no_calendar_holds_stays_a_number() -> None:
    assert time_text(1_700_000_000_123) == "2023-11-14 22:13:20.123Z"
    assert time_text(1 << 62) == str(1 << 62)
    assert shown(0.123456) == "0.1235"


@pytest.mark.parametrize(
    ("master", "remote", "conf", "words"),
    [
        ("local[1]", "sc://h:1", [], "give either --master or --remote-session"),
        (None, None, ["spark.x"], "expected KEY=VALUE"),
    ],
)
def test_wrong_session_options_are_reported_before_anything_starts(
    master: str | None, remote: str | None, conf: list[str], words: str
) -> None:
    options = SessionOptions(master=master, remote_session=remote, conf=conf)
    with pytest.raises(UsageError, match=words), options.open("x"):
        pytest.fail("there is no such session")
    assert key_values("--conf", ["a=b=c"]) == {"a": "b=c"}


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sc://127.0.0.1:1", "no answer: Connection refused"),
        ("sc://127.0.0.1:x", "Port could not be cast"),
        ("h:15002", "expected sc://HOST:PORT"),
    ],
)
def test_a_server_that_is_not_there_is_reported_at_once(url: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"--remote-session {url}: .*{words}"):
        _connect(url, {})
