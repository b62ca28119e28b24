"""The OpenAPI document of the web server: the JSON API from the declarations of the pages, and other paths.

Without HTML pages, scripts and styles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from stratalog.web import answers
from stratalog.web.declarations import Page, PageChange
from stratalog.web.fields import InputField
from stratalog.web.json_schema import SchemaBook

_JSON = "application/json"
_PATH_TYPES = {"partition": {"type": "integer", "minimum": 0}}
_ERRORS = {
    "400": "A field is invalid.",
    "401": "A login is needed.",
    "403": "The access rules of the broker, or its settings, do not allow it.",
    "404": "It does not exist, or access is denied.",
    "503": "The broker does not respond.",
}


_TEXT = {"type": "string"}
_HEALTH = {"200": "It is.", "503": "It is not; `status` has the reason."}
_OPEN: list[dict[str, list[str]]] = [{}]


def _beside(book: SchemaBook) -> dict[str, dict[str, Any]]:
    """Return the paths that are no pages."""
    one = "/topics/{topic}/partitions/{partition}/raw"
    part = {"type": "string", "enum": ["value", "key"], "default": "value"}
    login = {"type": "object", "properties": {"user": _TEXT, "password": _TEXT}, "required": ["user", "password"]}
    token = {"type": "object", "properties": {"form_token": _TEXT}}
    live = {_JSON: book.of(answers.LiveAnswer)}
    ready = {_JSON: book.of(answers.ReadyAnswer)}
    document = {_JSON: book.of(answers.OpenApiAnswer)}
    forms = {"303": "Redirect.", "400": "The form cannot be read, or is from another site."}
    return {
        "/health": {"get": _plain("health", "The same as /health/ready.", _HEALTH, ready, security=_OPEN)},
        "/health/live": {
            "get": _plain("live", "Whether the broker's event loop responds.", _HEALTH, live, security=_OPEN)
        },
        "/health/ready": {"get": _plain("ready", "Whether all clients are served.", _HEALTH, ready, security=_OPEN)},
        "/metrics": {
            "get": _plain(
                "metrics",
                "Metrics for Prometheus, as text or as OpenMetrics.",
                {"200": "The metrics.", "401": _ERRORS["401"], "503": _ERRORS["503"]},
                {"text/plain": _TEXT},
                security=[{}, {"basic": []}, {"metricsToken": []}],
            )
        },
        "/api/tier-status": {
            "get": _plain(
                "tierStatus",
                "Why segments are still local, or not yet remote.",
                {"200": "One object for each partition.", "401": _ERRORS["401"]},
                {_JSON: book.of(answers.TierStatusAnswer)},
                [{"name": "topic", "in": "query", "description": "Only this topic, tiered or not.", "schema": _TEXT}],
            )
        },
        "/api/openapi.json": {"get": _plain("openapi", "This document.", {"200": "This document."}, document)},
        one: {
            "get": _plain(
                "raw",
                "The bytes of a key or a value, as a download.",
                {
                    "200": "The bytes.",
                    "303": "Redirect to the login.",
                    **{code: _ERRORS[code] for code in ("403", "404", "503")},
                },
                {"application/octet-stream": _TEXT},
                [
                    *_path_parameters(one),
                    {"name": "offset", "in": "query", "required": True, "schema": {"type": "integer", "minimum": 0}},
                    {"name": "part", "in": "query", "schema": part},
                ],
            )
        },
        "/login": {
            "get": _plain("loginPage", "The login form.", {"200": "The form."}, {"text/html": _TEXT}, security=_OPEN),
            "post": {
                **_plain("login", "Log in.", {**forms, "401": "Wrong."}, {"text/html": _TEXT}, security=_OPEN),
                "requestBody": _form(login),
            },
        },
        "/logout": {
            "post": {
                **_plain("logout", "Log out.", forms, {"text/html": _TEXT}, security=_OPEN),
                "requestBody": _form(token),
            }
        },
    }


def _plain(
    name: str,
    summary: str,
    answers_by_code: Mapping[str, str],
    content: Mapping[str, Mapping[str, Any]],
    parameters: Iterable[dict[str, Any]] = (),
    *,
    security: list[dict[str, list[str]]] | None = None,
) -> dict[str, Any]:
    given = {kind: {"schema": dict(schema)} for kind, schema in content.items()}
    # A failed probe has the same type.
    has_content = ("200", "503") if answers_by_code is _HEALTH else ("200",)
    return {
        "operationId": name,
        "summary": summary,
        "parameters": list(parameters),
        "responses": {
            code: {"description": text, **({"content": given} if code in has_content else {})}
            for code, text in answers_by_code.items()
        },
        **({} if security is None else {"security": security}),
    }


def _form(schema: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {"application/x-www-form-urlencoded": {"schema": schema}}}


def api_path(path: str) -> str:
    """Return the path of a page's JSON."""
    return "/api/overview" if path == "/" else f"/api{path}"


def openapi(pages: Iterable[Page], actions: Iterable[PageChange], version: str) -> dict[str, Any]:
    book = SchemaBook()
    paths = _beside(book)
    for page in pages:
        paths[api_path(page.path)] = {"get": _get(page, book)}
    for action in actions:
        paths.setdefault(api_path(action.path), {})["post"] = _post(action, book)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "stratalog console",
            "version": version,
            "description": "What the pages of the console show, as JSON, and what else the web address serves. "
            "Times are milliseconds since 1970, UTC.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(book.schemas.items())),
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic", "description": "A user of the broker."},
                "metricsToken": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "stratalog.web.metrics.token.",
                },
                "session": {"type": "apiKey", "in": "cookie", "name": "stratalog_session"},
            },
        },
        "security": [{}, {"basic": []}, {"session": []}],
    }


def _get(page: Page, book: SchemaBook) -> dict[str, Any]:
    return {
        "operationId": page.name,
        "summary": page.summary,
        "parameters": [*_path_parameters(page.path), *(_query(each) for each in page.fields)],
        "responses": _responses(page.answer, book),
    }


def _post(action: PageChange, book: SchemaBook) -> dict[str, Any]:
    properties = {each.name: _schema(each) for each in action.fields}
    body = {"type": "object", "properties": properties}
    return {
        "operationId": f"change_{action.path.strip('/').replace('/', '_').replace('{', '').replace('}', '')}",
        "summary": action.summary,
        "parameters": _path_parameters(action.path),
        "requestBody": {"required": True, "content": {_JSON: {"schema": body}}},
        "responses": {
            **_responses(answers.DoneAnswer, book),
            "409": {
                "description": "It has changed since it was shown, or the broker refused the change.",
                "content": {_JSON: {"schema": book.of(answers.WrongFieldsAnswer)}},
            },
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


def _responses(answer: type, book: SchemaBook) -> dict[str, Any]:
    def of(text: str, shape: type) -> dict[str, Any]:
        return {"description": text, "content": {_JSON: {"schema": book.of(shape)}}}

    return {
        "200": of("The requested page.", answer),
        **{
            code: of(text, answers.WrongFieldsAnswer if code == "400" else answers.ErrorAnswer)
            for code, text in _ERRORS.items()
        },
    }
