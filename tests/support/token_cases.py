"""Everything that clients may ask of delegation tokens, put to a broker, so that Kafka's answers and ours compare."""

from __future__ import annotations

import hmac
import struct
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from stratalog.config import STANDARD_AUTHORIZER
from stratalog.wire import ApiKey
from stratalog.wire.client.options import Sasl
from stratalog.wire.client.sasl import dialogue
from tests.support.wire import Wire

SECRET = "a secret of tokens"
USERS = ("admin", "alice", "bob", "carol", "dave", "erin")
DAY_MS = 86_400_000
CREATE, RENEW, EXPIRE, DESCRIBE = (
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
)
_FLEXIBLE_FROM, _REQUESTER_FROM = 2, 3
_USER, _TOKEN, _ALLOW, _LITERAL = 7, 6, 3, 3
_DESCRIBE, _CREATE_TOKENS, _DESCRIBE_TOKENS = 8, 13, 14


def token_config(plain: str, sasl: str) -> dict[str, str]:
    """Settings of either broker: an open listener, one with passwords, an authorizer and a secret."""
    users = " ".join(f'user_{name}="{name}-secret"' for name in USERS)
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return {
        "listeners": f"PLAINTEXT://{plain},SASL_PLAINTEXT://{sasl}",
        "advertised.listeners": f"PLAINTEXT://{plain},SASL_PLAINTEXT://{sasl}",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": scram,
        "connection.failed.authentication.delay.ms": "0",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin;User:ANONYMOUS",
        "delegation.token.secret.key": SECRET,
    }


def log_in(wire: Wire, sasl: Sasl) -> Any:
    """Authenticate by hand; the last answer."""
    shaken = wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism=sasl.mechanism)
    assert shaken.error_code == 0
    talk = dialogue(sasl)
    message = next(talk)
    while True:
        answer = wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message)
        if answer.error_code:
            return answer
        try:
            message = talk.send(bytes(answer.auth_bytes))
        except StopIteration:
            return answer


class _Reader:
    """Reads answers by hand: times of -1, which Kafka gives, are none to the classes of messages."""

    def __init__(self, data: bytes, version: int) -> None:
        self._data = data
        self._flexible = version >= _FLEXIBLE_FROM
        self._at = 5 if self._flexible else 4

    def number(self, form: str) -> int:
        (found,) = struct.unpack_from(">" + form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(found)

    def _size(self, form: str) -> int:
        if not self._flexible:
            return self.number(form)
        found = shift = 0
        while True:
            byte = self.number("B")
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found - 1

    def data(self, form: str) -> bytes:
        size = self._size(form)
        self._at += size
        return self._data[self._at - size : self._at]

    def principal(self) -> str:
        return f"{self.data('h').decode()}:{self.data('h').decode()}"

    def array(self, read: Callable[[], Any]) -> list[Any]:
        return [self._tagged(read) for _ in range(self._size("i"))]

    def _tagged(self, read: Callable[[], Any]) -> Any:
        found = read()
        if self._flexible:
            assert self.number("B") == 0
        return found


class Story:
    """What is asked, in order, and what is answered; tokens are named by the order in which they came."""

    def __init__(self, plain: str, sasl: str, lag_s: float) -> None:
        self._plain = plain
        self._sasl = sasl
        self._lag_s = lag_s
        self._open = ExitStack()
        self._wires: dict[str, Wire] = {}
        self._names: dict[str, str] = {}
        self.secrets: dict[str, tuple[str, bytes]] = {}
        self.said: list[str] = []

    def wire(self, who: str) -> Wire:
        if who not in self._wires:
            wire = self._open.enter_context(Wire(self._plain if who == "ANONYMOUS" else self._sasl))
            if who in USERS:
                assert log_in(wire, Sasl("PLAIN", who, f"{who}-secret")).error_code == 0
            elif who != "ANONYMOUS":
                mechanism, _, name = who.partition(" ")
                id_, secret = self.secrets[name]
                answer = log_in(wire, Sasl(mechanism, id_, b64encode(secret).decode(), by_token=True))
                assert answer.error_code == 0
                lifetime = answer.session_lifetime.total_seconds()
                self.said.append(f"{who} logs in for {round(lifetime / 60)} min")
            self._wires[who] = wire
        return self._wires[who]

    def close(self) -> None:
        self._open.close()

    def _ask(self, who: str, key: ApiKey, version: int, fields: Mapping[str, Any]) -> _Reader | None:
        wire = self.wire(who)
        wire.send(key, version, **fields)
        try:
            return _Reader(wire.receive_bytes(), version)
        except OSError:
            del self._wires[who]
            return None

    def create(self, who: str, version: int = 3, name: str = "", **fields: Any) -> None:
        """`renewers` and `owner` are names of users, or (type, name)."""
        lifetime = fields.get("lifetime", -1)
        asked: dict[str, Any] = {
            "renewers": [_principal(each) for each in fields.get("renewers", ())],
            "max_lifetime": lifetime,
        }
        if version >= _REQUESTER_FROM:
            owner = fields.get("owner")
            kind, owner_name = owner if isinstance(owner, tuple) else (owner and "User", owner)
            asked |= {"owner_principal_type": kind, "owner_principal_name": owner_name}
        about = f"{who} create v{version} {fields}"
        found = self._ask(who, CREATE, version, asked)
        if found is None:
            self.said.append(f"{about}: closed")
            return
        code, owner_said = found.number("h"), found.principal()
        requester = found.principal() if version >= _REQUESTER_FROM else ""
        issued, expires, last = (found.number("q") for _ in range(3))
        id_, secret = found.data("h").decode(), found.data("i")
        times: object = (issued, expires, last)
        if code == 0:
            self._names[id_] = name = name or f"token{len(self._names)}"
            self.secrets[name] = (id_, secret)
            assert abs(issued - time.time() * 1000) < 60_000
            times = (expires - issued, last - issued)
            assert secret == hmac.digest(SECRET.encode(), id_.encode(), "sha512")
            assert len(id_) == 22
        else:
            assert (id_, secret) == ("", b"")
        self.said.append(f"{about}: {code} {owner_said} {requester} {times}")

    def renew(self, who: str, name: str, period: int, version: int = 2) -> None:
        self._change(who, RENEW, name, version, {"renew_period": period})

    def expire(self, who: str, name: str, period: int, version: int = 2) -> None:
        self._change(who, EXPIRE, name, version, {"expiry_time_period": period})

    def _change(self, who: str, key: ApiKey, name: str, version: int, fields: dict[str, int]) -> None:
        secret = self.secrets[name][1] if name in self.secrets else name.encode()
        found = self._ask(who, key, version, {"hmac": secret, **fields})
        about = f"{who} {key.name} v{version} {name} {fields}"
        if found is None:
            self.said.append(f"{about}: closed")
            return
        code, expires = found.number("h"), found.number("q")
        if code == 0:
            expires = round((expires - time.time() * 1000) / 60_000)
        self.said.append(f"{about}: {code} {expires}")

    def describe(self, who: str, owners: tuple[str, ...] | None = None, version: int = 3) -> None:
        asked = None if owners is None else [_principal(each) for each in owners]
        found = self._ask(who, DESCRIBE, version, {"owners": asked})
        assert found is not None
        reader = found
        code = reader.number("h")

        def token() -> str:
            owner = reader.principal()
            requester = reader.principal() if version >= _REQUESTER_FROM else ""
            issued, expires, last = (reader.number("q") for _ in range(3))
            id_, secret = reader.data("h").decode(), reader.data("i")
            renewers = reader.array(reader.principal)
            name = self._names[id_]
            assert self.secrets[name] == (id_, secret)
            minutes = [round((each - issued) / 60_000) for each in (expires, last)]
            return f"{name} of {owner} by {requester} {minutes} {renewers}"

        tokens = sorted(reader.array(token))
        self.said.append(f"{who} describe v{version} {owners}: {code} {tokens}")

    def allow(self, who: str, operation: int, kind: int, name: str) -> None:
        """Add an access rule, which counts at once or soon."""
        creation = {
            "resource_type": kind,
            "resource_name": name,
            "resource_pattern_type": _LITERAL,
            "principal": f"User:{who}",
            "host": "*",
            "operation": operation,
            "permission_type": _ALLOW,
        }
        answer = self.wire("admin").call(ApiKey.CREATE_ACLS, 3, creations=[creation])
        assert [int(each.error_code) for each in answer.results] == [0]
        self.wait()

    def wait(self) -> None:
        """Wait until Kafka's broker has learned what its controller was asked for."""
        time.sleep(self._lag_s)


def _principal(who: str | tuple[str, str]) -> dict[str, str]:
    kind, name = who if isinstance(who, tuple) else ("User", who)
    return {"principal_type": kind, "principal_name": name}


def story(plain: str, sasl: str, lag_s: float = 0.0) -> list[str]:
    """The whole story of a broker with a secret."""
    reported = Story(plain, sasl, lag_s)
    try:
        _tell(reported)
    finally:
        reported.close()
    return reported.said


def story_without_tokens(plain: str, sasl: str, lag_s: float = 0.0) -> list[str]:
    """What a broker without a secret says."""
    reported = Story(plain, sasl, lag_s)
    try:
        for who in ("ANONYMOUS", "alice"):
            reported.create(who)
            reported.create(who, renewers=(("Group", "g"),))
            reported.create(who, owner="bob")
            reported.renew(who, "unknown", 1)
            reported.expire(who, "unknown", -1)
            reported.describe(who)
    finally:
        reported.close()
    return reported.said


def _tell(reported: Story) -> None:
    for version in (1, 2, 3):
        reported.create("ANONYMOUS", version)
        reported.describe("ANONYMOUS", None, version)
    for version in (1, 2):
        reported.renew("ANONYMOUS", "unknown", -1, version)
        reported.expire("ANONYMOUS", "unknown", -1, version)
    reported.describe("alice")
    reported.create("alice", 1, "first", renewers=("bob", "bob"))
    reported.create("alice", 2, "second", lifetime=2 * DAY_MS)
    reported.create("alice", 3, "third", lifetime=600_000, renewers=("carol",))
    reported.create("bob", 3, "of bob", lifetime=0)
    reported.create("alice", 3, lifetime=100 * DAY_MS)
    reported.create("alice", renewers=("bob", ("Group", "g")))
    reported.create("alice", renewers=(("user", "bob"),))
    reported.create("alice", renewers=(("User", ""),))
    reported.create("alice", owner="bob")
    reported.create("alice", owner="alice")
    reported.create("alice", owner="")
    reported.create("alice", owner=("Group", "alice"))
    reported.create("alice", owner=("User", "bob"), renewers=(("Group", "g"),))
    reported.create("admin", 3, "for bob", owner="bob", renewers=("carol",))
    reported.create("admin", 3, "for a group", owner=("Group", "g"))
    reported.allow("alice", _CREATE_TOKENS, _USER, "User:carol")
    reported.create("alice", 3, "for carol", owner="carol")
    reported.create("alice", owner="dave")
    reported.wait()
    for who in ("alice", "bob", "carol", "dave", "admin"):
        for owners in (None, (), ("alice",), ("bob", "carol"), ("nobody",)):
            reported.describe(who, owners)
    for version in (1, 2):
        reported.describe("alice", None, version)
    reported.allow("dave", _DESCRIBE_TOKENS, _USER, "User:alice")
    reported.allow("erin", _DESCRIBE, _TOKEN, reported.secrets["of bob"][0])
    for who in ("dave", "erin"):
        reported.describe(who)
        reported.describe(who, ("alice",))
    for who in ("alice", "bob", "carol", "admin"):
        reported.renew(who, "first", 3_600_000)
        reported.expire(who, "second", 1_800_000)
        reported.renew(who, "for bob", -1)
        reported.expire(who, "for carol", 7_200_000)
    for period in (-1, 0, 60_000, DAY_MS, 30 * DAY_MS):
        reported.renew("alice", "first", period, 1)
        reported.renew("alice", "third", period)
    reported.renew("alice", "unknown", -1)
    reported.expire("alice", "unknown", -1)
    reported.renew("alice", "", -1)
    reported.wait()
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        who = f"{mechanism} first"
        reported.create(who)
        reported.renew(who, "first", -1)
        reported.expire(who, "first", -1)
        reported.describe(who)
    _fail_to_log_in(reported)
    reported.expire("alice", "third", 0)
    time.sleep(0.01)
    reported.wait()
    reported.renew("alice", "third", 60_000)
    reported.expire("alice", "third", 60_000)
    reported.renew("bob", "third", 60_000)
    reported.describe("alice")
    reported.expire("alice", "third", -1, 1)
    reported.renew("alice", "third", 60_000)
    reported.expire("bob", "first", -1)
    reported.wait()
    reported.expire("bob", "first", -1)
    reported.describe("admin")


def _fail_to_log_in(reported: Story) -> None:
    id_, secret = reported.secrets["first"]
    password = b64encode(secret).decode()
    for sasl in (
        Sasl("SCRAM-SHA-256", id_, password),
        Sasl("SCRAM-SHA-256", id_, password[:-4], by_token=True),
        Sasl("SCRAM-SHA-512", id_, "", by_token=True),
        Sasl("SCRAM-SHA-512", id_[:-1] + "_", password, by_token=True),
        Sasl("SCRAM-SHA-512", "alice", "alice-secret", by_token=True),
        Sasl("PLAIN", id_, password, by_token=True),
    ):
        with Wire(reported._sasl) as wire:
            answer = log_in(wire, sasl)
            what = "alice" if sasl.username == "alice" else "its id" if sasl.username == id_ else "another id"
            reported.said.append(f"{sasl.mechanism} {what} {sasl.by_token}: {answer.error_code} {answer.error_message}")
