"""Check how the columns of a table change from one run to the next: fields may only be added. Pure."""

from __future__ import annotations

from typing import Any

from stratalog.errors import UsageError


def check_evolution(before: Any, now: Any, decoded: str) -> None:
    """Raise UsageError, which names the field, unless `now` has every field of `before` with its type.

    Both are structs in Spark's JSON. Fields may be added to the table, to the struct `decoded` and to structs in it.
    """
    _check_struct(before, now, "", decoded)


def _check_struct(before: Any, now: Any, prefix: str, decoded: str) -> None:
    following = {field["name"]: field["type"] for field in now["fields"]}
    for field in before["fields"]:
        name = f"{prefix}{field['name']}"
        if field["name"] not in following:
            raise UsageError(
                f"column {name} of the table is missing in the rows of this run; it may be null but not absent"
            )
        old, new = field["type"], following[field["name"]]
        is_decoded = name == decoded or name.startswith(f"{decoded}.")
        if is_decoded and _is_struct(old) and _is_struct(new):
            _check_struct(old, new, f"{name}.", decoded)
        elif _without_nullability(old) != _without_nullability(new):
            raise UsageError(
                f"column {name} of the table is {_shown(old)}, in this run {_shown(new)}; export to another table"
            )


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, dict) and kind.get("type") == "struct"


def _without_nullability(kind: Any) -> Any:
    if isinstance(kind, list):
        return [_without_nullability(each) for each in kind]
    if isinstance(kind, dict):
        dropped = ("nullable", "containsNull", "valueContainsNull", "metadata")
        return {name: _without_nullability(value) for name, value in kind.items() if name not in dropped}
    return kind


def _shown(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])
