"""Handle requests for pages, their JSON and their changes, with errors shown where they belong."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote

import jinja2
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from stratalog.errors import (
    ClusterAuthorizationFailedError,
    CoordinatorLoadInProgressError,
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    KafkaError,
    KafkaStorageError,
    OffsetOutOfRangeError,
    StratalogError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from stratalog.web import words_and_numbers as words
from stratalog.web.declarations import ChangeConflictError, Console, NotThatValueError, Page, PageChange
from stratalog.web.fields import Inputs, read_inputs
from stratalog.web.gate import FAILED_LOGIN_S, Gate, NoLoginError, RefusedChangeError
from stratalog.web.openapi import api_path, openapi
from stratalog.web.pages import ACTIONS, PAGES, raw, visible
from stratalog.web.sessions import ConsoleSession, login_of
from stratalog.web.viewer import BrokerStalledError, ConsoleViewer

logger = logging.getLogger(__name__)

_BODY_BYTES_MAX: Final = 6 * 1024 * 1024
_FIELDS_MAX: Final = 200
#: For unknown users.
_LOGIN_BYTES_MAX: Final = 64 * 1024
_LOGINS_AT_ONCE: Final = 8
_PARTITION: Final = re.compile(r"\d{1,7}", re.ASCII)
#: The header of automatic refreshes: messages wait for a page load by the user.
_REFRESH: Final = "stratalog-refresh"
_NAV: Final = (
    ("/", "Overview", ("overview",)),
    ("/topics", "Topics", ("topics", "partitions", "settings", "consumers", "messages", "produce", "retention",
                           "segments", "batches", "records")),
    ("/groups", "Groups", ("groups", "group")),
    ("/tier", "Tier", ("tier",)),
    ("/cluster", "Cluster", ("cluster",)),
    ("/security", "Security", ("security",)),
    ("/events", "Events", ("events",)),
)  # fmt: skip


class Desk:
    """Handles requests for the pages of `pages.catalog`."""

    def __init__(self, console: Console, gate: Gate) -> None:
        self._console = console
        self._gate = gate
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("stratalog.web", "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        for name in ("size", "number", "counted", "limit", "span", "ms", "rate", "iso", "when"):
            self._templates.filters[name] = getattr(words, name)
        self._templates.filters["visible"] = visible
        self._templates.globals["link"] = words.link
        self._templates.globals["api_path"] = api_path
        self._pages = {page.name: page for page in PAGES}
        self._logins = asyncio.Semaphore(_LOGINS_AT_ONCE)

    def routes(self) -> list[Route]:
        document = openapi(PAGES, ACTIONS, _version())
        return [
            Route("/api/openapi.json", lambda _: JSONResponse(document)),
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Route("/topics/{topic}/partitions/{partition}/raw", self._raw),
            *(Route(path, self._page(page, is_json=is_json)) for page in PAGES
              for path, is_json in ((page.path, False), (api_path(page.path), True))),
            *(Route(path, self._action(action, is_json=is_json), methods=["POST"]) for action in ACTIONS
              for path, is_json in ((action.path, False), (api_path(action.path), True))),
        ]  # fmt: skip

    def exception_handlers(self) -> Mapping[Any, Callable[[Request, Exception], Response]]:
        return {HTTPException: self._http_error, Exception: self._unforeseen}

    # --- pages --------------------------------------------------------------------------------------------------------

    def _page(self, page: Page, *, is_json: bool) -> Callable[[Request], Response]:
        def serve(request: Request) -> Response:
            try:
                viewer = self._gate.viewer(request)
                return self._show(request, viewer, page, is_json=is_json)
            except Exception as error:  # noqa: BLE001
                return self._failed(request, error, is_json=is_json)

        return serve

    def _show(
        self,
        request: Request,
        viewer: ConsoleViewer,
        page: Page,
        *,
        is_json: bool,
        refused: Inputs | None = None,
        status: int = 200,
        problem: str | None = None,
    ) -> Response:
        """Render a page. `refused` has the input of a rejected form with its errors."""
        given = dict(request.query_params)
        inputs = read_inputs(page.fields, given)
        errors = dict(inputs.errors)
        path = self._path_values(request)
        try:
            model = page.view(viewer, self._console, {**path, **inputs.values})
        except NotThatValueError as error:
            errors[error.field] = str(error)
            values = {**inputs.values, **{each.name: each.default for each in page.fields if each.name in errors}}
            model = page.view(viewer, self._console, {**path, **values})
        if errors and status == 200:
            status = 400
        if is_json:
            return JSONResponse({"errors": errors}, 400) if errors else JSONResponse(model)
        if refused is not None:
            errors.update(refused.errors)
        context = {
            "page_name": page.name,
            "path": request.url.path if refused is None else self._path_of(page, path),
            "query": {name: inputs.texts[name] for name in inputs.texts if name in given},
            "texts": {each.name: inputs.texts[each.name] or _text(each.default) for each in page.fields},
            "form": {} if refused is None else refused.texts,
            "errors": errors,
            "fields": {each.name: each for each in page.fields},
            "problem": problem,
            "corrected": refused is not None,
            **model,
        }
        return self._render(request, f"{page.name}.html", context, status, viewer)

    def _render(
        self, request: Request, template: str, context: Mapping[str, Any], status: int, viewer: ConsoleViewer | None
    ) -> Response:
        session = self._gate.session(request)
        begun = False
        if session is None and viewer is not None and viewer.may_change:
            session, begun = self._gate.sessions.begin(), True
        message = None
        if session is not None and _REFRESH not in request.headers:
            message, session.message = session.message, None
        name = template.removesuffix(".html")
        html = self._templates.get_template(template).render(
            nav=[(path, title, name in names) for path, title, names in _NAV],
            viewer=viewer,
            user=session.login.principal.name if session is not None and session.login is not None else None,
            form_token=session.form_token if session is not None else "",
            message=message,
            may_change=viewer is not None and viewer.may_change,
            **context,
        )
        response = HTMLResponse(html, status)
        if begun and session is not None:
            self._cookie(request, response, session)
        return response

    def _cookie(self, request: Request, response: Response, session: ConsoleSession) -> None:
        self._gate.give_cookie(response, session, secure=request.url.scheme == "https")

    @staticmethod
    def _path_values(request: Request) -> dict[str, Any]:
        values: dict[str, Any] = dict(request.path_params)
        if "partition" in values:
            text = values["partition"]
            if not _PARTITION.fullmatch(text):
                raise UnknownTopicOrPartitionError(f"there is no partition {text[:20]}")
            values["partition"] = int(text)
        return values

    @staticmethod
    def _path_of(page: Page, values: Mapping[str, Any]) -> str:
        return page.path.format(**{name: quote(str(value), safe="") for name, value in values.items()})

    def _raw(self, request: Request) -> Response:
        """Return a key or value unchanged, as a download that is never rendered."""
        try:
            viewer = self._gate.viewer(request)
            values = self._path_values(request)
            offset = request.query_params.get("offset", "")
            part = "key" if request.query_params.get("part") == "key" else "value"
            if not re.fullmatch(r"\d{1,18}", offset, re.ASCII):
                raise OffsetOutOfRangeError("expected an offset")
            data = raw(viewer, values["topic"], values["partition"], int(offset), part)
        except Exception as error:  # noqa: BLE001
            return self._failed(request, error, is_json=False)
        name = f"{values['topic']}-{values['partition']}-{offset}-{part}.bin"
        return Response(
            data or b"",
            media_type="application/octet-stream",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )

    # --- changes ------------------------------------------------------------------------------------------------------

    def _action(self, action: PageChange, *, is_json: bool) -> Callable[[Request], Any]:
        async def serve(request: Request) -> Response:
            try:
                viewer = await asyncio.to_thread(self._gate.viewer, request)
                given = await _body(request, is_json=is_json)
            except ValueError as error:
                return await asyncio.to_thread(self._unreadable, request, error, is_json)
            except NoLoginError as error:
                return self._failed(request, error, is_json=is_json)
            return await asyncio.to_thread(self._act, request, viewer, action, given, is_json)

        return serve

    def _unreadable(self, request: Request, error: Exception, is_json: bool) -> Response:
        return self._error(request, 400, "The request cannot be read", str(error), is_json=is_json)

    def _act(
        self, request: Request, viewer: ConsoleViewer, action: PageChange, given: Mapping[str, str], is_json: bool
    ) -> Response:
        try:
            self._gate.check_change(request, given.get("form_token"), is_json=is_json)
            return self._do(request, viewer, action, given, is_json=is_json)
        except Exception as error:  # noqa: BLE001
            return self._failed(request, error, is_json=is_json)

    def _do(
        self, request: Request, viewer: ConsoleViewer, action: PageChange, given: Mapping[str, str], *, is_json: bool
    ) -> Response:
        inputs = read_inputs(action.fields, given)
        status, problem = 400, None
        if not inputs.errors:
            try:
                where, done = action.act(viewer, self._console, {**self._path_values(request), **inputs.values})
            except NotThatValueError as error:
                inputs = Inputs(inputs.values, inputs.texts, {error.field: str(error)})
            except ChangeConflictError as error:
                status, problem = 409, str(error)
            else:
                if is_json:
                    return JSONResponse({"done": done})
                session = self._gate.session(request)
                if session is not None:
                    session.message = done
                return RedirectResponse(where, 303)
        if is_json:
            body: dict[str, Any] = {"errors": dict(inputs.errors)}
            return JSONResponse(body if problem is None else {**body, "error": problem}, status)
        shown = {name: text for name, text in inputs.texts.items() if name != "password"}
        return self._show(
            request,
            viewer,
            self._pages[action.page],
            is_json=False,
            refused=Inputs(inputs.values, shown, inputs.errors),
            status=status,
            problem=problem,
        )

    # --- login --------------------------------------------------------------------------------------------------------

    async def _login(self, request: Request) -> Response:
        following = _own_path(request.query_params.get("next"))
        if request.method == "GET":
            return await asyncio.to_thread(self._login_page, request, following)
        try:
            self._gate.check_origin(request)
            given = await _body(request, is_json=False, bytes_max=_LOGIN_BYTES_MAX)
        except (RefusedChangeError, ValueError) as error:
            return await asyncio.to_thread(self._unreadable, request, error, False)
        user, password = given.get("user", "")[:500], given.get("password", "")[:1000]
        async with self._logins:
            login = await asyncio.to_thread(login_of, self._console.broker, user, password)
            if login is None:
                await asyncio.sleep(FAILED_LOGIN_S)
        if login is None:
            self._console.events.note("warning", "console", f"a login as {visible(user)!r} failed")
            return await asyncio.to_thread(
                self._login_page, request, following, "The name or the password is wrong.", user
            )
        self._gate.sessions.end(request.cookies.get("stratalog_session"))
        response = RedirectResponse(following, 303)
        self._cookie(request, response, self._gate.sessions.begin(login))
        return response

    def _login_page(self, request: Request, following: str, wrong: str | None = None, user_given: str = "") -> Response:
        context = {
            "following": following,
            "wrong": wrong,
            "user_given": user_given,
            "is_secure": request.url.scheme == "https" or self._gate.is_here,
            "bootstrapServers": self._console.bootstrap_servers,
        }
        return self._render(request, "login.html", context, 401 if wrong else 200, None)

    async def _logout(self, request: Request) -> Response:
        try:
            given = await _body(request, is_json=False, bytes_max=_LOGIN_BYTES_MAX)
        except ValueError as error:
            return await asyncio.to_thread(self._unreadable, request, error, False)
        session = self._gate.session(request)
        if session is not None and given.get("form_token") == session.form_token:
            self._gate.sessions.end(session.token)
        return RedirectResponse("/login" if self._gate.needs_login else "/", 303)

    # --- errors -------------------------------------------------------------------------------------------------------

    def _failed(self, request: Request, error: Exception, *, is_json: bool) -> Response:
        if isinstance(error, NoLoginError):
            if is_json:
                return JSONResponse(
                    {"error": "a login is needed"}, 401, {"WWW-Authenticate": 'Basic realm="stratalog"'}
                )
            query = f"?{request.url.query}" if request.url.query else ""
            return RedirectResponse(f"/login?next={quote(request.url.path + query, safe='')}", 303)
        for kinds, status, title in _STATUS:
            if isinstance(error, kinds):
                return self._error(request, status, title, str(error), is_json=is_json)
        return self._unforeseen(request, error)

    def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        title = {404: "Page not found", 405: "Not allowed here"}.get(error.status_code, error.detail)
        is_json = request.url.path.startswith("/api/")
        return self._error(request, error.status_code, title, "", is_json=is_json, headers=error.headers)

    def _unforeseen(self, request: Request, error: Exception) -> Response:
        logger.error("The console failed at %s", request.url.path, exc_info=error)
        is_json = request.url.path.startswith("/api/")
        return self._error(request, 500, "An error of the console", "See the broker's log.", is_json=is_json)

    def _error(
        self,
        request: Request,
        status: int,
        title: str,
        text: str,
        *,
        is_json: bool,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        if is_json:
            return JSONResponse({"error": text or title}, status, dict(headers or {}))
        try:
            viewer: ConsoleViewer | None = self._gate.viewer(request)
        except NoLoginError:
            viewer = None
        context = {"status": status, "title": title, "text": text}
        response = self._render(request, "error.html", context, status, viewer)
        response.headers.update(headers or {})
        return response


_STATUS: Final[tuple[tuple[Any, int, str], ...]] = (
    (RefusedChangeError, 403, "This change was refused"),
    (
        (TopicAuthorizationFailedError, GroupAuthorizationFailedError, ClusterAuthorizationFailedError),
        403,
        "You may not see this",
    ),
    ((UnknownTopicOrPartitionError, GroupIdNotFoundError), 404, "Not found"),
    (OffsetOutOfRangeError, 404, "No such offset"),
    (CoordinatorLoadInProgressError, 503, "The broker is still loading its groups"),
    (BrokerStalledError, 503, "The broker does not respond"),
    (KafkaStorageError, 503, "The disk of this partition has failed"),
    (RuntimeError, 503, "The broker is stopping"),
    (KafkaError, 409, "The broker refused"),
    (StratalogError, 503, "The broker cannot handle this now"),
)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _own_path(path: str | None) -> str:
    """Return a path of this server, whatever the input."""
    if path is None or not path.startswith("/") or path.startswith(("//", "/\\")) or not path.isprintable():
        return "/"
    return path


async def _body(request: Request, *, is_json: bool, bytes_max: int = _BODY_BYTES_MAX) -> dict[str, str]:
    """Return the fields of a form or a JSON object. ValueError describes what is wrong."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    expected = "application/json" if is_json else "application/x-www-form-urlencoded"
    if kind != expected:
        raise ValueError(f"expected a body of {expected}")
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > bytes_max:
                raise ValueError(f"expected at most {bytes_max} bytes")
    except ClientDisconnect:
        raise ValueError("the connection ended before the request did") from None
    try:
        text = body.decode()
        if not is_json:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_FIELDS_MAX, errors="strict")
            # Text areas of forms end their lines with CR LF.
            return {name: value.replace("\r\n", "\n") for name, value in pairs}
        found = json.loads(text)
    except RecursionError:
        raise ValueError("expected a flat object") from None
    if not isinstance(found, dict):
        raise ValueError("expected an object")
    given = {str(name): value if isinstance(value, str) else json.dumps(value) for name, value in found.items()}
    for value in given.values():
        value.encode()  # half of a surrogate pair is no text
    return given


def _version() -> str:
    try:
        return importlib.metadata.version("stratalog")
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        return "source"
