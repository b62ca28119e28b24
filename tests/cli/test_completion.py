"""Completion in a shell: the scripts, and what they are answered."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.cli.admin_commands import CommandLine

from stratalog import Broker
from stratalog.cli.completion import COMPLETE_VARIABLE
from stratalog.cli.main import run


def completed(line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words that bash is given for the last word of a line."""
    with monkeypatch.context() as patch:
        patch.setenv(COMPLETE_VARIABLE, "complete_bash")
        patch.setenv("COMP_WORDS", line)
        patch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        with pytest.raises(SystemExit):
            run([])
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("stratalog prod", ["produce"]),
        ("stratalog groups re", ["reset-offsets"]),
        ("stratalog consume --iso", ["--isolation-level"]),
        ("stratalog produce t --input ", ["lines", "json", "raw", "sized"]),
        ("stratalog spark index v", ["verify"]),
    ],
)
def test_commands_options_and_choices_are_completed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str, expected: list[str]
) -> None:
    assert completed(line, capsys, monkeypatch) == expected


def test_names_of_topics_and_groups_come_from_the_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        cli = CommandLine(broker.bootstrap_servers, capsys)
        for name in ("orders", "offers", "events"):
            cli.good("topics", "create", name)
        cli.good("groups", "reset-offsets", "ours", "--topic", "orders", "--to-latest", "--execute")
        monkeypatch.setenv("STRATALOG_BOOTSTRAP_SERVER", broker.bootstrap_servers)
        assert completed("stratalog consume o", capsys, monkeypatch) == ["offers", "orders"]
        assert completed("stratalog topics describe e", capsys, monkeypatch) == ["events"]
        assert completed("stratalog groups describe o", capsys, monkeypatch) == ["ours"]
        monkeypatch.delenv("STRATALOG_BOOTSTRAP_SERVER")
        assert completed("stratalog consume o", capsys, monkeypatch) == []
        line = f"stratalog produce -b {broker.bootstrap_servers} e"
        assert completed(line, capsys, monkeypatch) == ["events"]
    monkeypatch.setenv("STRATALOG_BOOTSTRAP_SERVER", broker.bootstrap_servers)
    assert completed("stratalog consume o", capsys, monkeypatch) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_the_shell_takes(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert COMPLETE_VARIABLE in script
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} to read it")
    subprocess.run([shell, "-n"], input=script, text=True, check=True)
