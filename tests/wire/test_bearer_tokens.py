"""A client's tokens of OAUTHBEARER: how the endpoint is asked, when one is renewed, and what is said of failures."""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.token_endpoint import TokenEndpoint, granted, unsigned_token
from tests.support.waiting import wait_until

from stratalog.util import SystemClock
from stratalog.wire.client.bearer_tokens import BearerToken, TokenSource, bearer_token, fetch_token, renewal_ms
from stratalog.wire.client.errors import AuthenticationError, UnreachableError
from stratalog.wire.client.options import Sasl
from stratalog.wire.client.sasl import SaslError, dialogue
from stratalog.wire.client.token_login import Refresh, TokenLogin

SECRET = "Planted-3f1"
EARLY = Refresh(min_period_s=0, buffer_s=0)


class CountingClock(SystemClock):
    def __init__(self) -> None:
        self.looks = 0
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        with self._lock:
            self.looks += 1
            return super().monotonic()


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with TokenEndpoint() as endpoint:
        yield endpoint


def login_at(endpoint: TokenEndpoint, **settings: object) -> TokenLogin:
    found = {"client_id": "billing", "client_secret": SECRET, "where": "the endpoint", "retry_max_s": 0.0, **settings}
    return TokenLogin(endpoint.url, **found)  # type: ignore[arg-type]


def test_the_endpoint_is_asked_as_by_kafka(endpoint: TokenEndpoint) -> None:
    fetch_token(login_at(endpoint, scope="a b&c"))
    headers, body = endpoint.requests[0]
    assert body == "grant_type=client_credentials&scope=a+b%26c"
    assert headers["Authorization"] == "Basic " + base64.b64encode(f"billing:{SECRET}".encode()).decode()
    assert headers["Content-Type"] == "application/x-www-form-urlencoded"
    fetch_token(login_at(endpoint, client_id="a:b", encodes_credentials=True))
    encoded = endpoint.requests[1][0]["Authorization"].removeprefix("Basic ")
    assert base64.b64decode(encoded).decode() == f"a%3Ab:{SECRET}"


def test_a_token_is_kept_for_all_connections_until_it_is_due(endpoint: TokenEndpoint) -> None:
    login = login_at(endpoint)
    assert bearer_token(login) == bearer_token(login)
    assert len(endpoint.requests) == 1


def test_a_token_is_renewed_before_it_ends(endpoint: TokenEndpoint) -> None:
    now = int(time.time())
    endpoint.answer = lambda: granted(iat=now - 6000, exp=now + 600, jti=str(len(endpoint.requests)))
    source = TokenSource(login_at(endpoint, refresh=EARLY))
    first = source.token()
    wait_until(lambda: source.token() != first, "a new token")


def test_an_expired_token_is_not_used(endpoint: TokenEndpoint) -> None:
    endpoint.answer = lambda: granted(exp=int(time.time()) - 1, iat=None, jti=str(len(endpoint.requests)))
    source = TokenSource(login_at(endpoint))
    assert source.token() != source.token()


def test_the_current_token_stays_in_use_while_the_endpoint_fails(
    endpoint: TokenEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    now = int(time.time())
    endpoint.answer = lambda: granted(iat=now - 6000, exp=now + 600)
    source = TokenSource(login_at(endpoint, refresh=EARLY))
    first = source.token()
    endpoint.answer = lambda: (401, json.dumps({"error": "invalid_client"}))
    with caplog.at_level(logging.WARNING):
        assert source.token() == first
        wait_until(lambda: "the current one stays in use" in caplog.text, "the warning")
    assert source.token() == first
    assert len(endpoint.requests) == 2  # it is not asked again at once
    assert SECRET not in caplog.text


def test_an_endpoint_that_hangs_does_not_hold_up_logins_by_the_current_token(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratalog.wire.client.bearer_tokens._RENEWAL_PATIENCE_S", 0.01)
    go_on = threading.Event()
    now = int(time.time())
    endpoint.answer = lambda: granted(iat=now - 6000, exp=now + 600)
    source = TokenSource(login_at(endpoint, refresh=EARLY))
    first = source.token()

    def answer() -> tuple[int, str]:
        assert go_on.wait(60)
        return granted(jti="second")

    endpoint.answer = answer
    try:
        for _ in range(3):
            assert source.token() == first
        wait_until(lambda: len(endpoint.requests) == 2, "the endpoint is asked once")
        assert source.token() == first
    finally:
        go_on.set()
    wait_until(lambda: source.token() != first, "the new token")
    assert len(endpoint.requests) == 2


def test_threads_that_wait_for_one_request_share_its_failure(endpoint: TokenEndpoint) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def answer() -> tuple[int, str]:
        asked.set()
        assert go_on.wait(30)
        return 401, "{}"

    endpoint.answer = answer
    clock = CountingClock()
    source = TokenSource(login_at(endpoint), clock)
    errors: list[Exception] = []

    def ask() -> None:
        try:
            source.token()
        except AuthenticationError as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for each in threads:
        each.start()
    assert asked.wait(30)
    # The one that asks has looked twice, each of the others once.
    wait_until(lambda: clock.looks == 6, "all have come")
    go_on.set()
    for each in threads:
        each.join(30)
    assert len(errors) == 5
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, '{"error": "invalid_client", "error_description": "no\\nsuch client"}'), "401 (invalid_client: nosuch"),
        ((400, f'{{"error": "bad {SECRET}"}}'), "400 (bad ***)"),
        ((404, "<html>"), "answers 404"),
        ((200, "<html>"), "not JSON with an access_token"),
        ((200, "[]"), "not JSON with an access_token"),
        ((200, '{"access_token": " "}'), "not JSON with an access_token"),
        ((200, '{"access_token": "a.b"}'), "expected a JSON Web Token"),
        ((200, '{"access_token": "a\\u0001.b.c"}'), "expected a JSON Web Token"),
        ((200, '{"access_token": "a.b.c"}'), "its claims are not JSON"),
        (granted(exp=None), "it has no claim exp"),
        (granted(exp="soon"), "claim exp is not a number"),
        (granted(sub=None), "claim sub is not a name"),
    ],
)
def test_an_answer_that_does_not_let_a_client_in_is_one_line(
    endpoint: TokenEndpoint, answer: tuple[int, str], said: str
) -> None:
    endpoint.answer = lambda: answer
    with pytest.raises(AuthenticationError) as raised:
        fetch_token(login_at(endpoint, retry_max_s=10.0))
    message = str(raised.value)
    assert message.startswith("the endpoint: ")
    assert said in message
    assert "\n" not in message
    assert SECRET not in message
    assert len(endpoint.requests) == 1


def test_a_failure_that_may_pass_is_tried_again(endpoint: TokenEndpoint) -> None:
    endpoint.answer = lambda: (503, "") if len(endpoint.requests) < 3 else granted()
    assert fetch_token(login_at(endpoint, retry_max_s=30.0, retry_backoff_s=0.01)).text
    assert len(endpoint.requests) == 3
    endpoint.answer = lambda: (503, "")
    with pytest.raises(UnreachableError, match="the endpoint answers 503"):
        fetch_token(login_at(endpoint))


def test_an_endpoint_that_is_gone_is_unreachable() -> None:
    with TokenEndpoint() as endpoint:
        assert endpoint.requests == []
    with pytest.raises(UnreachableError, match="the endpoint: no token: Connection refused"):
        fetch_token(login_at(endpoint))


def test_a_host_name_that_is_none_is_unreachable(endpoint: TokenEndpoint) -> None:
    with pytest.raises(UnreachableError, match="the endpoint: no token"):
        fetch_token(replace(login_at(endpoint), url="http://a..b/token"))


def test_a_token_in_a_file_is_read_for_each_login(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    login = TokenLogin(file.as_uri(), where="the file")
    for name in ("one", "two"):
        file.write_text(f"{unsigned_token(jti=name)}\n")
        assert bearer_token(login) == file.read_text().strip()
    file.unlink()
    with pytest.raises(UnreachableError, match="the file: no token: No such file"):
        bearer_token(login)


def test_an_unsigned_token_has_the_claims_of_its_options() -> None:
    claims = (("StringClaim_sub", "me"), ("NumberClaim_n", "7"), ("ListClaim_scope", "|a|b"), ("LifetimeSeconds", "60"))
    head, body, signature = bearer_token(TokenLogin(unsecured=claims)).split(".")
    assert signature == ""
    assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": "none"}
    found = json.loads(base64.urlsafe_b64decode(body + "=="))
    assert (found["sub"], found["n"], found["scope"]) == ("me", 7, ["a", "b"])
    assert found["exp"] - found["iat"] == pytest.approx(60)


@pytest.mark.parametrize(
    ("starts_s", "ends_s", "due_s"),
    [
        (0, 10_000, 8000),  # a share of the lifetime
        (-7900, 2100, 100),  # late in it
        (-9000, 1000, 60),  # not sooner than the shortest period
        (0, 1000, 700),  # the buffer before its end
        (0, 100, 80),  # too short for both buffers
        (-60, 20, 16),
    ],
)
def test_a_token_is_due_when_kafka_renews_it(starts_s: int, ends_s: int, due_s: int) -> None:
    now = 1_000_000
    token = BearerToken("", now + starts_s * 1000, now + ends_s * 1000)
    assert renewal_ms(token, TokenLogin(), now, 0) == now + due_s * 1000
    later = renewal_ms(token, TokenLogin(refresh=Refresh(window_jitter=0.0)), now, 999)
    assert later == now + due_s * 1000


def test_the_first_message_has_the_extensions_and_a_refusal_ends_the_talk(endpoint: TokenEndpoint) -> None:
    login = login_at(endpoint, extensions=(("traceId", "7"),))
    talk = dialogue(Sasl("OAUTHBEARER", "", "", login=login))
    token = bearer_token(login)
    assert next(talk) == f"n,,\x01auth=Bearer {token}\x01traceId=7\x01\x01".encode()
    assert talk.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(SaslError, match="does not accept the token"):
        talk.send(b"")


def test_nothing_shows_a_secret_or_a_token(endpoint: TokenEndpoint) -> None:
    login = login_at(endpoint)
    shown = f"{login!r} {Sasl('OAUTHBEARER', '', '', login=login)!r} {fetch_token(login)!r}"
    assert SECRET not in shown
    assert "signature" not in shown
