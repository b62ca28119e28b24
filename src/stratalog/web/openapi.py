"""The OpenAPI document of the JSON API, made of the declarations of the pages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from stratalog.web.declarations import Page, PageChange
from stratalog.web.fields import InputField

_PATH_TYPES = {"partition": {"type": "integer", "minimum": 0}}
_ERRORS = {
    "400": "A field is wrong: `errors` has a text for each.",
    "401": "A login is needed.",
    "403": "The access rules of the broker, or its settings, do not allow it.",
    "404": "There is no such thing, or it may not be seen.",
    "503": "The broker does not answer at the moment.",
}


def api_path(path: str) -> str:
    """Return where the JSON of a page is."""
    return "/api/overview" if path == "/" else f"/api{path}"


def openapi(pages: Iterable[Page], actions: Iterable[PageChange], version: str) -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, dict[str, Any]] = {}
    for page in pages:
        paths[api_path(page.path)] = {"get": _get(page)}
    for action in actions:
        paths.setdefault(api_path(action.path), {})["post"] = _post(action)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "stratalog console",
            "version": version,
            "description": "What the pages of the console show, as JSON. Times are milliseconds since 1970, UTC.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic", "description": "A user of the broker."},
                "session": {"type": "apiKey", "in": "cookie", "name": "stratalog_session"},
            }
        },
        "security": [{}, {"basic": []}, {"session": []}],
    }


def _get(page: Page) -> dict[str, Any]:
    return {
        "operationId": page.name,
        "summary": page.summary,
        "parameters": [*_path_parameters(page.path), *(_query(each) for each in page.fields)],
        "responses": _responses(),
    }


def _post(action: PageChange) -> dict[str, Any]:
    properties = {each.name: _schema(each) for each in action.fields}
    body = {"type": "object", "properties": properties}
    return {
        "operationId": f"change_{action.path.strip('/').replace('/', '_').replace('{', '').replace('}', '')}",
        "summary": action.summary,
        "parameters": _path_parameters(action.path),
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            **_responses(),
            "409": {"description": "It has been changed by somebody else since it was shown."},
        },
    }


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _PATH_TYPES.get(name, {"type": "string"})}
        for name in re.findall(r"{(\w+)}", path)
    ]


def _query(field: InputField) -> dict[str, Any]:
    return {"name": field.name, "in": "query", "description": field.help, "schema": dict(field.schema)}


def _schema(field: InputField) -> dict[str, Any]:
    return {**field.schema, **({"description": field.help} if field.help else {})}


def _responses() -> dict[str, Any]:
    return {
        "200": {"description": "As asked for.", "content": {"application/json": {"schema": {"type": "object"}}}},
        **{code: {"description": text} for code, text in _ERRORS.items()},
    }
