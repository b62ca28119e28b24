"""The command line as a whole: exit codes, and one line on stderr for whatever goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stratalog.cli import main as cli
from stratalog.cli.commands import COMMANDS, CommandSpec, LazyCommand, load
from stratalog.errors import StratalogError, UsageError


def command(monkeypatch: pytest.MonkeyPatch, body: Callable[[], Any]) -> None:
    """Make `stratalog broken` run `body`."""
    spec = CommandSpec("broken", "tests.cli.test_main:broken", "Breaks.")
    monkeypatch.setattr(cli, "COMMANDS", (spec,))
    monkeypatch.setitem(globals(), "broken", lambda: body())


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UsageError("no such\n  topic"), "no such topic"),
        (StratalogError(), "StratalogError"),
        (
            FileNotFoundError(2, "No such file or directory", "/nowhere"),
            "/nowhere: No such file or directory",
        ),
        (OSError(28, "No space left on device"), "No space left on device"),
        (ZeroDivisionError("oh"), "internal error: ZeroDivisionError: oh (STRATALOG_DEBUG=1 shows where)"),
    ],
)
def test_an_error_is_one_line_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, line: str
) -> None:
    def fail() -> None:
        raise error

    command(monkeypatch, fail)
    assert cli.run(["broken"]) == 2
    assert capsys.readouterr() == ("", f"stratalog: {line}\n")


def test_a_traceback_is_shown_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise UsageError("no")

    command(monkeypatch, fail)
    monkeypatch.setenv("STRATALOG_DEBUG", "1")
    assert cli.run(["broken"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_is_exit_130_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    command(monkeypatch, fail)
    assert cli.run(["broken"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("status", [0, 1, 2])
def test_what_a_command_returns_is_the_exit_code(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    command(monkeypatch, lambda: status)
    assert cli.run(["broken"]) == status


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["unheard-of"], "No such command 'unheard-of'"),
        (["serve"], "Missing option '--data-dir'"),
        (["serve", "--frobnicate"], "No such option: --frobnicate"),
    ],
)
def test_a_wrong_command_line_is_exit_2_and_says_where_help_is(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert cli.run(arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "--help" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("spec", COMMANDS, ids=lambda spec: spec.name)
def test_every_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str], spec: CommandSpec) -> None:
    assert cli.run([spec.name, "--help"]) == 0
    help_text = capsys.readouterr().out
    assert f"stratalog {spec.name}" in help_text
    assert "Example" in help_text


def test_the_help_lists_every_command_with_its_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == 0
    listed = capsys.readouterr().out
    assert [spec.name for spec in COMMANDS if spec.name not in listed] == []


def test_a_command_is_loaded_only_when_it_runs() -> None:
    spec = CommandSpec("x", "stratalog.no_such_module:x", "Nothing.")
    assert LazyCommand(spec).help == "Nothing."
    with pytest.raises(ModuleNotFoundError):
        load(spec)


def test_a_reader_that_goes_away_is_no_error() -> None:
    script = f"{sys.executable} -m stratalog --help | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_broker_that_is_started_without_standard_streams_gives_their_numbers_to_no_file(tmp_path: Path) -> None:
    serve = [
        sys.executable,
        "-m",
        "stratalog",
        "serve",
        "--data-dir",
        str(tmp_path / "data"),
        "--listen",
        "127.0.0.1:0",
    ]
    started = ["sh", "-c", 'exec "$@" <&- 2>&-', "sh", *serve]
    with subprocess.Popen(started, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready")
        held = [str(Path(f"/proc/{process.pid}/fd/{number}").readlink()) for number in (0, 2)]
        process.terminate()
    assert held == ["/dev/null", "/dev/null"]
    assert process.returncode == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_without_standard_streams_ends_as_with_them(closed: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "stratalog", "topics", "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("command", "closed", "stream"),
    [
        ("produce orders", "<&-", "input"),
        ("metadata check -", "<&-", "input"),
        ("consume orders -e", ">&-", "output"),
    ],
)
def test_a_command_that_needs_a_stream_that_is_closed_says_so(command: str, closed: str, stream: str) -> None:
    script = f"exec {sys.executable} -m stratalog {command} {closed}"
    environment = {**os.environ, "STRATALOG_BOOTSTRAP_SERVER": "127.0.0.1:9"}
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"stratalog: standard {stream} is closed: ")
