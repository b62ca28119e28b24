"""Access control: which requests need a login, which may change something, and from where."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import threading
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from stratalog.broker import BrokerServices
from stratalog.broker.security import Principal
from stratalog.errors import UsageError
from stratalog.web.hosts import is_address
from stratalog.web.sessions import COOKIE, ConsoleSession, Sessions, basic_credentials, is_bearer, login_of
from stratalog.web.viewer import ConsoleViewer

logger = logging.getLogger(__name__)

#: Checking passwords takes time, so only a few are checked concurrently.
FAILED_LOGIN_S: Final = 1.0
_GUESSES_AT_ONCE: Final = 8
_NAME_SHOWN: Final = 100
_ANONYMOUS: Final = Principal("User", "ANONYMOUS")


class NoLoginError(Exception):
    """The request needs a login."""


class RefusedChangeError(Exception):
    """A change that is not allowed, or is not from a page of this console."""


class Gate:
    """The access rules of one broker's web server. Thread-safe."""

    def __init__(self, broker: BrokerServices, host: str) -> None:
        settings = broker.config
        mode = settings["stratalog.web.login"]
        self._broker = broker
        self.sessions = Sessions(broker.clock)
        self.is_here = is_this_machine(host)
        self.needs_login = mode == "required" or (mode == "auto" and (not self.is_here or broker.access is not None))
        self._metrics_need_login = mode == "required" or (mode == "auto" and not self.is_here)
        self._guesses = threading.BoundedSemaphore(_GUESSES_AT_ONCE)
        #: Sleeps for seconds on the thread of a request.
        self.wait: Callable[[float], object] = threading.Event().wait
        self._token: str | None = settings["stratalog.web.metrics.token"]
        self.allows_changes: bool = settings["stratalog.web.allow.changes"]
        if self.allows_changes and not self.is_here and not self.needs_login:
            raise UsageError(
                f"stratalog.web.allow.changes=true with stratalog.web.login=off is allowed on loopback addresses only, "
                f"and the console is served on {host or 'every address'}: every client there could change everything"
            )

    def session(self, request: Request) -> ConsoleSession | None:
        """Return the session of a request. It ends if its user is removed or has another password."""
        found = self.sessions.find(request.cookies.get(COOKIE))
        if found is not None and found.login is not None and not found.login.holds(self._broker):
            self.sessions.end(found.token)
            return None
        return found

    def viewer(self, request: Request) -> ConsoleViewer:
        """Return the user of a request. Raises NoLoginError."""
        principal = self._principal(request)
        if principal is None:
            if self.needs_login:
                raise NoLoginError
            principal = _ANONYMOUS
        client = request.client.host if request.client is not None else "127.0.0.1"
        return ConsoleViewer(self._broker, principal, client.removeprefix("::ffff:"), self.allows_changes)

    def _principal(self, request: Request) -> Principal | None:
        session = self.session(request)
        if session is not None and session.login is not None:
            return session.login.principal
        given = basic_credentials(request.headers.get("authorization", ""))
        return None if given is None else self._by_password(*given)

    def _by_password(self, user: str, password: str) -> Principal | None:
        """Return the principal of a name and password of a program.

        A wrong password takes as long as in the form. No others are checked while many are waiting.
        """
        if not self._guesses.acquire(blocking=False):
            return None
        self._guesses.release()
        login = login_of(self._broker, user, password)
        if login is not None:
            return login.principal
        logger.warning("A login as %r by Basic failed", user[:_NAME_SHOWN])
        if self._guesses.acquire(blocking=False):
            try:
                self.wait(FAILED_LOGIN_S)
            finally:
                self._guesses.release()
        return None

    def check_metrics(self, request: Request) -> None:
        """Raise NoLoginError unless the request may read the metrics."""
        if not self._metrics_need_login or is_bearer(request.headers.get("authorization", ""), self._token):
            return
        if not self.viewer(request).may_cluster():
            raise NoLoginError

    def check_change(self, request: Request, form_token: str | None, *, is_json: bool) -> None:
        """Raise RefusedChangeError unless changes are allowed and this one is from the console.

        A form has the token of its session. Other sites cannot send JSON without a preflight request.
        """
        if not self.allows_changes:
            raise RefusedChangeError("the console is read-only; stratalog.web.allow.changes=true allows changes")
        self.check_origin(request)
        if is_json:
            return
        session = self.session(request)
        if session is None or not hmac.compare_digest(session.form_token.encode(), (form_token or "").encode()):
            raise RefusedChangeError("this form has expired or is not from this console; load its page again")

    @staticmethod
    def check_origin(request: Request) -> None:
        """Raise RefusedChangeError for a request from a page of another site."""
        origin = request.headers.get("origin")
        own = request.headers.get("host", "")
        if origin is not None and origin.partition("://")[2] != own:
            raise RefusedChangeError("the request comes from another site")
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise RefusedChangeError("the request comes from another site")

    def give_cookie(self, response: Response, session: ConsoleSession, *, secure: bool) -> None:
        response.set_cookie(COOKIE, session.token, httponly=True, samesite="strict", secure=secure, path="/")


def is_this_machine(host: str) -> bool:
    """Return whether a server on this host can only be reached from this machine."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)
