"""JSON schemas of typed dictionaries for OpenAPI, each class once by name."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

_PLAIN = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    NoneType: {"type": "null"},
}


class SchemaBook:
    """Collects the schemas of types passed to `of`, for `components.schemas`."""

    def __init__(self) -> None:
        self.schemas: dict[str, dict[str, Any]] = {}

    def of(self, shape: Any) -> dict[str, Any]:
        """Return the schema of a type, with references to its classes. Raises TypeError for an unsupported one."""
        if is_typeddict(shape):
            self._describe(shape)
            return {"$ref": f"#/components/schemas/{shape.__name__}"}
        if shape is Any:
            return {}
        if shape in _PLAIN:
            return dict(_PLAIN[shape])
        origin, parts = get_origin(shape), get_args(shape)
        if origin is list:
            return {"type": "array", "items": self.of(parts[0])}
        if origin is dict and parts[0] is str:
            return {"type": "object", "additionalProperties": self.of(parts[1])}
        if origin is Literal:
            return {"type": "string", "enum": list(parts)}
        if origin in (Union, UnionType):
            return {"anyOf": [self.of(part) for part in parts]}
        raise TypeError(f"{shape} has no schema")

    def _describe(self, shape: Any) -> None:
        if shape.__name__ in self.schemas:
            return
        schema = self.schemas[shape.__name__] = {
            "type": "object",
            "description": " ".join((shape.__doc__ or "").split()),
        }
        hints = get_type_hints(shape, include_extras=True)
        needed = {name: hint for name, hint in hints.items() if get_origin(hint) is not NotRequired}
        schema["properties"] = {
            name: self.of(hint if name in needed else get_args(hint)[0]) for name, hint in hints.items()
        }
        schema["required"] = list(needed)
        schema["additionalProperties"] = False
