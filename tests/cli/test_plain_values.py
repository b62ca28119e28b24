"""Plain values are taken without typer's converters, exactly as typer would take them."""

from __future__ import annotations

import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.core import TyperCommand
from typer.main import get_command

from stratalog.cli.help import HelpfulCommand


class Form(Enum):
    TEXT = "text"
    JSON = "json"


def _command(
    path: Annotated[Path | None, typer.Option()] = None,
    existing: Annotated[Path | None, typer.Option(exists=True)] = None,
    word: Annotated[str, typer.Option()] = "as it was",
    words: Annotated[list[str] | None, typer.Option()] = None,
    paths: Annotated[list[Path] | None, typer.Option()] = None,
    form: Annotated[Form, typer.Option()] = Form.TEXT,
    count: Annotated[int, typer.Option(min=1, max=9)] = 3,
    share: Annotated[float, typer.Option()] = 0.5,
    flag: Annotated[bool, typer.Option()] = False,
) -> dict[str, Any]:
    return locals()


def _outcome(cls: type[TyperCommand], args: list[str]) -> object:
    app = typer.Typer(add_completion=False)
    app.command(cls=cls)(_command)
    try:
        values = get_command(app).main(args, standalone_mode=False)
    except typer.TyperException as error:
        return type(error), error.format_message()
    return [(name, type(value), value) for name, value in values.items()]


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--path", "/nowhere/at/all"],
        ["--path", "."],
        ["--path", "/tmp/größe"],
        ["--path", ""],
        ["--existing", "."],
        ["--existing", "/nowhere/at/all"],
        ["--word", ""],
        ["--word", "plain text"],
        ["--word", "Grüße"],
        ["--words", "a", "--words", "ü"],
        ["--paths", "a", "--paths", "b/c"],
        ["--form", "json"],
        ["--form", "JSON"],
        ["--form", "yaml"],
        ["--count", "7"],
        ["--count", "0"],
        ["--count", "many"],
        ["--share", "0.25"],
        ["--flag"],
    ],
    ids=" ".join,
)
def test_values_and_errors_are_those_of_typer(args: list[str]) -> None:
    assert _outcome(HelpfulCommand, args) == _outcome(TyperCommand, args)


def test_a_path_that_cannot_be_read_is_refused_as_by_typer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.touch()
    monkeypatch.setattr("os.access", lambda *_: False)  # root may read everything
    outcome = _outcome(HelpfulCommand, ["--path", str(secret)])
    assert outcome == _outcome(TyperCommand, ["--path", str(secret)])
    assert "is not readable" in str(outcome)


def test_a_broker_starts_without_what_only_some_brokers_use() -> None:
    script = """
import sys
from stratalog.cli.main import run
assert run(["serve", "--listen", "127.0.0.1:0", "--log-format", "json"]) == 2  # no directory: nothing is started
from stratalog.broker.apis import load_apis
load_apis()
unused = "pydantic", "http.client", "stratalog.engine.replication.fetcher", "stratalog.remote.tier.manager"
unused += "stratalog.remote.tier.status", "stratalog.remote.storage.manifest", "stratalog.remote.api.interfaces"
print(*(name for name in unused if name in sys.modules))
"""
    ended = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ended.stdout.split() == []
