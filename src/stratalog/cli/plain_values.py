"""Options whose values need no converter of typer's, which is pydantic: importing it costs a fifth of a broker's start.

What is absent, a default, ASCII text, a path without conditions and a choice as it is spelled are taken here. For every
other value, and for every wrong one, typer converts and complains as ever.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Final, get_args, get_origin

#: Of a value that typer has to convert.
_OTHER: Final = object()


def take_plain_values(parameters: list[Any]) -> list[Any]:
    """Let the parameters of a command take plain values without typer's converters; return the parameters."""
    for parameter in parameters:
        made_by_typer = getattr(parameter, "get_runtime_param", None)  # only of a typer that converts with pydantic
        if made_by_typer is not None and not isinstance(getattr(made_by_typer, "__self__", None), _PlainFirst):
            parameter.get_runtime_param = _PlainFirst(parameter, made_by_typer).itself
    return parameters


class _PlainFirst:
    """The converter of one parameter."""

    def __init__(self, parameter: Any, made_by_typer: Callable[[], Any]) -> None:
        info = parameter.type_descriptor.parameter_info
        is_checked = info.parser or info.exists or info.resolve_path or not (info.file_okay and info.dir_okay)
        self._type = None if is_checked else parameter.type_descriptor.annotation
        self._made_by_typer = made_by_typer

    def itself(self) -> _PlainFirst:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value that the command gets. Raises typer's error for a value that does not fit."""
        taken = self._taken(value, is_many=param.multiple or param.nargs == -1)
        return self._made_by_typer().coerce(value, param=param, ctx=ctx) if taken is _OTHER else taken

    def _taken(self, value: Any, *, is_many: bool) -> Any:
        if self._type is None:
            return _OTHER
        if not is_many:
            return None if value is None else _plain(value, self._type)
        if value is None:
            return ()
        if get_origin(self._type) is not list or not isinstance(value, (list, tuple)):
            return _OTHER
        (of_each,) = get_args(self._type)
        taken = [_plain(each, of_each) for each in value]
        return _OTHER if any(each is _OTHER for each in taken) else taken


def _plain(value: Any, wanted: Any) -> Any:
    if not isinstance(wanted, type):
        return _OTHER
    if type(value) is wanted and wanted in (int, float, bool):
        return value  # a default
    if issubclass(wanted, Enum):
        return next((one for one in wanted if value is one or value == one.value), _OTHER)
    if wanted in (str, Path) and isinstance(value, (str, wanted)) and str(value).isascii():
        # Of a path that is there but cannot be read, typer complains.
        is_good = wanted is str or os.access(value, os.R_OK) or not os.path.lexists(value)
        return wanted(value) if is_good else _OTHER
    return _OTHER
