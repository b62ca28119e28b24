"""Groups of options: one value in the signature of a command, single options for typer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from inspect import Parameter, signature
from typing import Any, get_type_hints


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionGroup:
    """Base of option groups: dataclasses whose fields are annotated like the parameters of a command."""


def flattened(command: Callable[..., int]) -> Callable[..., int]:
    """Return the command with the options of groups as separate parameters, for typer."""
    parameters = signature(command, eval_str=True).parameters.values()
    groups = {each.name: each.annotation for each in parameters if _is_group(each.annotation)}
    if not groups:
        return command

    def with_groups(**values: Any) -> int:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        return command(**values)

    flat = [
        option.replace(kind=Parameter.KEYWORD_ONLY)
        for each in parameters
        for option in (_options_of(each.annotation) if each.name in groups else [each])
    ]
    with_groups.__doc__ = command.__doc__
    with_groups.__name__ = command.__name__
    with_groups.__signature__ = signature(command).replace(parameters=flat)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {option.name: option.annotation for option in flat}
    return with_groups


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, OptionGroup)


def _options_of(group: type[OptionGroup]) -> list[Parameter]:
    annotations = get_type_hints(group, include_extras=True)
    return [each.replace(annotation=annotations[each.name]) for each in signature(group).parameters.values()]
