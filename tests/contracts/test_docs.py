"""What the documents claim, where that can be checked: tables, links, command lines, the page of keys."""

from __future__ import annotations

import os
import re
import runpy
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from stratalog.broker.apis import load_apis
from stratalog.cli.commands import COMMANDS, CommandSpec, GroupSpec, load
from stratalog.config.documentation import page

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / ".github").rglob("*.md"))]
LINE_LENGTH_MAX = 120

_ROW = re.compile(r"\| (\w+) \| (\d+) \| (\d+)–(\d+) \|.*", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?")
_LINK = re.compile(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)")


def test_the_table_of_apis_is_what_the_broker_speaks() -> None:
    text = (ROOT / "docs" / "COMPATIBILITY.md").read_text()
    documented = [(name, int(key), int(low), int(high)) for name, key, low, high in _ROW.findall(text)]
    spoken = [(api.key.message, key, api.min_version, api.max_version) for key, api in sorted(load_apis().items())]
    assert documented == spoken


def test_the_page_of_configuration_keys_is_that_of_the_declarations() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text() == page()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    missing = []
    for target, anchor in _LINK.findall(path.read_text()):
        file = path.parent / target if target else path
        if not file.exists() or (anchor and anchor[1:] not in anchors(file)):
            missing.append(target + anchor)
    assert missing == []


def test_the_page_of_the_package_index_stands_alone() -> None:
    """It is shown where none of the repository's files are: no relative link, and no picture of the repository."""
    text = (ROOT / "docs" / "package.md").read_text()
    assert _LINK.findall(text) == []
    assert "src=" not in text


def anchors(file: Path) -> set[str]:
    """The headings of a page, spelled as GitHub links to them."""
    headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_can_be_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    reached, ahead = set[Path](), [index]
    while ahead:
        path = ahead.pop()
        reached.add(path)
        linked = {
            Path(os.path.normpath(path.parent / target)) for target, _ in _LINK.findall(path.read_text()) if target
        }
        linked |= {page for one in linked if one.is_dir() for page in one.glob("*.md")}
        ahead += [one for one in linked - reached if one.suffix == ".md"]
    in_package_index = ROOT / "docs" / "package.md"
    assert {path for path in (ROOT / "docs").rglob("*.md") if path != in_package_index} - reached == set()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_line_is_too_long_but_those_of_tables(path: Path) -> None:
    lines = enumerate(path.read_text().splitlines(), 1)
    assert [at for at, line in lines if len(line) > LINE_LENGTH_MAX and not line.lstrip().startswith("|")] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_line_is_one_that_the_program_takes(path: Path) -> None:
    assert [(line, unknown) for line in command_lines(path.read_text()) if (unknown := unknown_words(line))] == []


def command_lines(text: str) -> Iterator[str]:
    """What begins with `stratalog` in code: indented or fenced blocks, and spans of a paragraph."""
    text = text.replace("\\\n", " ")
    for line in re.findall(r"^(?: {4,}|\$ )(?:\$ )?(?:\./)?stratalog (?=[a-z])(.*)$", text, re.MULTILINE):
        yield line.partition(" #")[0]
    for span in re.findall(r"`(?:\./)?stratalog (?=[a-z])([^`]*)`", text):
        yield " ".join(span.split())


def unknown_words(line: str) -> list[str]:
    """The words of a command line that are no command and no option of it; values are not looked at."""
    line = re.split(r"\s[|>&;]\s|\s{2,}(?![-\[])|,", line)[0]
    words = shlex.split(line.replace("'", "").replace('"', "").replace("...", ""))
    specs = COMMANDS
    while words:
        names = words[0].split("|")
        found = next((spec for spec in specs if spec.name == names[-1]), None)
        if found is None or not set(names) <= {spec.name for spec in specs}:
            return [words[0]] if not words[0].startswith("-") else [one for one in words if one not in ("--help",)]
        words.pop(0)
        if not isinstance(found, GroupSpec):
            options = re.findall(r"(?<![\w-])--?[a-z][a-z-]*(?![\w])", " ".join(words))
            return [option for option in options if option.startswith("--") and option not in options_of(found.target)]
        specs = found.commands
    return []


def all_commands(specs: tuple[CommandSpec | GroupSpec, ...]) -> Iterator[CommandSpec]:
    for spec in specs:
        if isinstance(spec, GroupSpec):
            yield from all_commands(spec.commands)
        else:
            yield spec


@cache
def options_of(target: str) -> set[str]:
    spec = next(one for one in all_commands(COMMANDS) if one.target == target)
    known = {"--help"}
    for parameter in load(spec).params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    return known


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_test_that_is_named_is_there(path: Path) -> None:
    named = set(_TEST.findall(path.read_text()))
    texts = {file: (ROOT / file).read_text() if (ROOT / file).is_file() else "" for file, _ in named}
    missing = [
        (file, test)
        for file, test in named
        if not texts[file] or (test and not re.search(rf"^\s*(def|class) {test}\b", texts[file], re.MULTILINE))
    ]
    assert missing == []


def test_the_drawings_are_as_the_code_draws_them() -> None:
    drawings = runpy.run_path(str(ROOT / "tools" / "drawings.py"))["DRAWINGS"]
    drawn = {name: str(draw()) for name, draw in drawings.items()}
    kept = {path.stem: path.read_text() for path in (ROOT / "docs" / "images").glob("*.svg")}
    assert kept == drawn, "run python -m tools.drawings"


def test_every_folder_of_goldens_says_what_it_is_and_from_which_kafka() -> None:
    folders = [path for path in (ROOT / "tests" / "golden").iterdir() if path.is_dir() and path.name != "__pycache__"]
    pages = {path.name: path / "README.md" for path in folders}
    assert [
        name for name, readme in pages.items() if not readme.is_file() or "Kafka 4.4" not in readme.read_text()
    ] == []


def test_every_file_and_room_that_the_architecture_names_is_there() -> None:
    named = re.findall(r"`([a-z_]+/[\w/.]*)`", (ROOT / "docs" / "ARCHITECTURE.md").read_text())
    assert len(named) > 40
    assert [one for one in named if not any((base / one).exists() for base in (ROOT / "src" / "stratalog", ROOT))] == []
