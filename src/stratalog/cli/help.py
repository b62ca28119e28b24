"""Print `--help`: usage, description, examples, arguments, options, sub-commands.

Paragraphs are wrapped to the terminal, except after a line `\\b`, so that an example can be copied. A flag shows no
value, repeatable options are marked, and old spellings are hidden. Headings are bold on a terminal unless NO_COLOR is
set.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup

from stratalog.cli.plain_values import take_plain_values

WIDTH_MAX = 100
NAME_WIDTH_MAX = 32

#: Spellings that still work and that help and documentation no longer mention.
OLD_SPELLINGS = frozenset({"--path", "--store-option", "--topics"})

#: Beginnings of lines that are not joined to the previous one.
_LINE_STARTS = ("Exit code",)

_VALUES = {int: "N", float: "X", str: "TEXT", Path: "PATH"}


class HelpfulCommand(TyperCommand):
    """A command with help by this module, which takes plain values without typer's converters."""

    def get_params(self, ctx: Any) -> Any:
        return take_plain_values(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(render(self, ctx))


class HelpfulGroup(TyperGroup):
    """A group with help by this module, which takes plain values without typer's converters."""

    def get_params(self, ctx: Any) -> Any:
        return take_plain_values(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(render(self, ctx))


def render(command: Any, ctx: Any) -> str:
    """Return the whole help text of a command or a group."""
    page = _Page()
    described, examples = _split_examples(command.help or "")
    page.paragraphs(described)
    page.section("Usage", [_usage(command, ctx)])
    page.section("Examples", examples)
    page.table("Commands", [(name, one.get_short_help_str(limit=200)) for name, one in _commands(command, ctx)])
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in command.get_params(ctx):
        if not getattr(parameter, "hidden", False):
            is_argument = parameter.param_type_name == "argument"
            title = parameter.rich_help_panel or ("Arguments" if is_argument else "Options")
            sections.setdefault(title, []).append((_name(parameter), _description(parameter, ctx)))
    # General options last: they are the same everywhere.
    for title in sorted(sections, key=lambda title: (title == "Options", title != "Arguments")):
        page.table(title, sections[title])
    return page.text()


class _Page:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._width = min(shutil.get_terminal_size().columns, WIDTH_MAX)
        self._bold = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def text(self) -> str:
        return "\n".join(self._lines).strip("\n") + "\n"

    def paragraphs(self, paragraphs: Iterable[str]) -> None:
        for paragraph in paragraphs:
            for line in _logical_lines(paragraph):
                self._lines += textwrap.wrap(line, self._width, break_long_words=False, break_on_hyphens=False)
            self._lines.append("")

    def section(self, title: str, lines: list[str]) -> None:
        if lines:
            self._lines += [self._heading(title), *(f"  {line}" for line in lines), ""]

    def table(self, title: str, rows: list[tuple[str, str]]) -> None:
        """Print names in one column and wrapped descriptions in the next, or below a name that is too long."""
        if not rows:
            return
        column = min(max(len(name) for name, _ in rows), NAME_WIDTH_MAX) + 4
        self._lines.append(self._heading(title))
        for name, description in rows:
            wrapped = textwrap.wrap(description, max(self._width - column, 30), break_on_hyphens=False) or [""]
            first = f"  {name}"
            if len(first) + 2 > column:
                self._lines.append(first)
            else:
                self._lines.append(f"{first:{column}}{wrapped.pop(0)}".rstrip())
            self._lines += [" " * column + line for line in wrapped]
        self._lines.append("")

    def _heading(self, title: str) -> str:
        return f"\x1b[1m{title}:\x1b[0m" if self._bold else f"{title}:"


def _split_examples(text: str) -> tuple[list[str], list[str]]:
    """Return the paragraphs to wrap, and the lines of the examples without their indent."""
    described, _, verbatim = text.partition("\b\n")
    lines = [line for line in verbatim.splitlines() if not line.startswith("Example")]
    paragraphs = [paragraph for paragraph in described.split("\n\n") if paragraph.strip()]
    return paragraphs, textwrap.dedent("\n".join(lines)).strip("\n").splitlines()


def _logical_lines(paragraph: str) -> Iterator[str]:
    """Join the lines of a paragraph, except before those that begin a new line."""
    joined = ""
    for line in paragraph.splitlines():
        if joined and line.startswith(_LINE_STARTS):
            yield joined
            joined = ""
        joined = f"{joined} {line.strip()}".strip()
    if joined:
        yield joined


def _usage(command: Any, ctx: Any) -> str:
    pieces = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    return re.sub(r"\[\[(.*?)\]\]", r"[\1]", pieces).replace("..]...", "..]")


def _commands(command: Any, ctx: Any) -> list[tuple[str, Any]]:
    if not isinstance(command, TyperGroup):
        return []
    found = ((name, command.get_command(ctx, name)) for name in command.list_commands(ctx))
    return [(name, one) for name, one in found if one is not None and not one.hidden]


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.display_name_raw).strip("[]")
    spellings = [one for one in (*parameter.opts, *parameter.secondary_opts) if one not in OLD_SPELLINGS]
    spellings.sort(key=lambda one: one.startswith("--"))
    name = ", ".join(spellings)
    if len(spellings[0]) > 2:
        name = f"    {name}"
    return name if parameter.is_flag else f"{name} {_value(parameter)}"


def _value(parameter: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    described = parameter.type_descriptor
    if described.is_choice and described.choices is not None:
        return "|".join(str(one.value if isinstance(one, Enum) else one) for one in described.choices)
    return _VALUES.get(described.annotation, "TEXT")


def _description(parameter: Any, ctx: Any) -> str:
    parts = [(parameter.help or "").strip()]
    if parameter.param_type_name == "option":
        if parameter.multiple and "repeat" not in parts[0]:
            parts.append("May be repeated.")
        default = parameter.get_default(ctx, call=False)
        if isinstance(default, Enum):
            default = default.value
        if default not in (None, False, True, "", [], ()) and parameter.show_default:
            parts.append(f"[default: {default}]")
        if parameter.envvar:
            parts.append(f"[environment: {parameter.envvar}]")
        if parameter.required:
            parts.append("[required]")
    return " ".join(part for part in parts if part)
