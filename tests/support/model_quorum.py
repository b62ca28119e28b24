"""A controller for one broker, on a socket and without Java: it registers it, unfences it and keeps its access rules.

    with ModelQuorum(cluster_id, authorizer=True) as quorum:
        quorum.write(some_record)                   # committed at once

It is what the broker needs of KRaft's `ControllerServer` and no more; who decides what is Kafka's is asked of Kafka.
What clients sent is in `forwarded`, with the principal that came with it; `answers` says what others than CreateAcls
are answered, by key, and `envelope_errors` which error the next envelopes have.
"""

from __future__ import annotations

import contextlib
import itertools
import socketserver
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from types import TracebackType
from typing import Any, NamedTuple
from uuid import UUID

from stratalog.records import Record, build_batch
from stratalog.wire import (
    ApiKey,
    build_message,
    make_message,
    message_module,
    principal_class,
    read_client_id,
    read_message,
    read_request,
    response_class,
    skip_tagged_fields,
    write_message,
)
from stratalog.wire.metadata_records import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    MetadataRecord,
    RegisterBrokerRecord,
)
from tests.broker.cluster.fake_controllers import FakeQuorum

_NODE = 100
_SECURITY_DISABLED = 54
_CLUSTER_AUTHORIZATION_FAILED = 31
#: Newest versions alone; what else brokers have sent on is advertised and not answered.
_VERSIONS = {
    ApiKey.FETCH: 18,
    ApiKey.FETCH_SNAPSHOT: 1,
    ApiKey.API_VERSIONS: 4,
    ApiKey.DESCRIBE_ACLS: 3,
    ApiKey.ENVELOPE: 0,
    ApiKey.BROKER_REGISTRATION: 4,
    ApiKey.BROKER_HEARTBEAT: 2,
    ApiKey.ALLOCATE_PRODUCER_IDS: 0,
    ApiKey.CREATE_ACLS: 3,
}


class Forwarded(NamedTuple):
    """A request of a client, by whom, and from where."""

    key: ApiKey
    principal: str
    by_token: bool
    address: bytes


class ModelQuorum:
    """See the module. `refuses` are error codes that an API answers at its top level instead of anything else."""

    def __init__(
        self, cluster_id: str, *, authorizer: bool = False, super_users: tuple[str, ...] = (), level: int = 30
    ) -> None:
        self.authorizer = authorizer
        self.super_users = super_users
        self.refuses: dict[ApiKey, int] = {}
        self.versions = dict(_VERSIONS)
        self.forwarded: list[Forwarded] = []
        #: Fields of the response to a forwarded request, from its message.
        self.answers: dict[ApiKey, Callable[[Any], dict[str, Any]]] = {}
        self.envelope_errors: list[int] = []
        self.lock = threading.RLock()
        self._unfenced: set[int] = set()
        self._numbers = itertools.count(1)
        self._server = _Server(self)
        self.log = FakeQuorum(cluster_id=cluster_id, leader=_NODE, addresses={_NODE: ("127.0.0.1", self._server.port)})
        self.write(FeatureLevelRecord(name="metadata.version", feature_level=level))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    def write(self, *records: MetadataRecord) -> None:
        """Commit records as one batch."""
        with self.lock:
            self.log.write(*records)

    def write_raw(self, value: bytes) -> None:
        """Commit a record that is none that is known."""
        with self.lock:
            at = self.log.end
            batch = build_batch([Record(at, 1_000, None, value)], base_offset=at, partition_leader_epoch=1)
            self.log.batches.append((at, 1, batch))
            self.log.high_watermark = self.log.end

    def allow(self, principal: str, operation: int, resource_type: int, name: str) -> UUID:
        """Write a rule that allows; return its id."""
        rule = AccessControlEntryRecord(
            id=UUID(int=next(self._numbers)), resource_type=resource_type, resource_name=name, pattern_type=3,
            principal=principal, host="*", operation=operation, permission_type=3,
        )  # fmt: skip
        self.write(rule)
        assert rule.id is not None
        return rule.id

    def __enter__(self) -> ModelQuorum:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # --- requests -----------------------------------------------------------------------------------------------------

    def answer(self, key: ApiKey, version: int, request: Any) -> Any:
        handlers: dict[ApiKey, Callable[[Any], dict[str, Any]]] = {
            ApiKey.BROKER_REGISTRATION: self._register,
            ApiKey.BROKER_HEARTBEAT: self._heartbeat,
            ApiKey.DESCRIBE_ACLS: self._describe_acls,
            ApiKey.ENVELOPE: self._envelope,
            ApiKey.ALLOCATE_PRODUCER_IDS: lambda _: {"producer_id_start": 1000, "producer_id_len": 1000},
        }
        if key in self.refuses:
            return make_message(response_class(key, version), {"error_code": self.refuses[key]})
        if key is ApiKey.API_VERSIONS:
            return self._api_versions(version)
        if key in (ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT):
            return self._follow(key, request)
        with self.lock:
            return make_message(response_class(key, version), handlers[key](request))

    def _api_versions(self, version: int) -> Any:
        each = message_module(ApiKey.API_VERSIONS, version, "response").ApiVersion
        keys = [
            make_message(each, {"api_key": key, "min_version": newest, "max_version": newest})
            for key, newest in self.versions.items()
        ]
        return make_message(response_class(ApiKey.API_VERSIONS, version), {"api_keys": keys})

    def _follow(self, key: ApiKey, request: Any) -> Any:
        deadline = time.monotonic() + 0.2
        while True:
            with self.lock:
                asked = request.topics[0].partitions[0]
                offset = getattr(asked, "fetch_offset", -1)
                if offset != self.log.end or time.monotonic() > deadline or asked.current_leader_epoch != 1:
                    return self.log.connect("", _NODE, None).call(  # type: ignore[arg-type]
                        key, (0, 0), **asdict(request)
                    )
            time.sleep(0.002)

    def _register(self, request: Any) -> dict[str, Any]:
        epoch = self.log.end
        self.write(
            RegisterBrokerRecord(
                broker_id=int(request.broker_id), incarnation_id=request.incarnation_id, broker_epoch=epoch,
                end_points=tuple(
                    BrokerEndpoint(
                        name=each.name,
                        host=each.host,
                        port=int(each.port),
                        security_protocol=int(each.security_protocol),
                    )
                    for each in request.listeners
                ),
                features=tuple(
                    BrokerFeature(
                        name=each.name, min_supported_version=int(each.min_supported_version),
                        max_supported_version=int(each.max_supported_version),
                    )
                    for each in request.features
                ),
                rack=request.rack, fenced=True, log_dirs=tuple(request.log_dirs),
            )
        )  # fmt: skip
        return {"broker_epoch": epoch}

    def _heartbeat(self, request: Any) -> dict[str, Any]:
        fenced = bool(request.want_fence)
        if not fenced and not request.want_shut_down and request.broker_epoch not in self._unfenced:
            self._unfenced.add(int(request.broker_epoch))
            change = BrokerRegistrationChangeRecord(
                broker_id=int(request.broker_id), broker_epoch=int(request.broker_epoch), fenced=-1
            )
            self.write(change)
        return {
            "is_caught_up": request.current_metadata_offset >= request.broker_epoch,
            "is_fenced": fenced,
            "should_shut_down": bool(request.want_shut_down),
        }

    def _describe_acls(self, _request: Any) -> dict[str, Any]:
        return {"error_code": 0 if self.authorizer else _SECURITY_DISABLED}

    def _envelope(self, request: Any) -> dict[str, Any]:
        principal, _ = read_message(principal_class(), bytes(request.request_principal)[2:])
        frame = memoryview(bytes(request.request_data))
        key, version, correlation_id, inner = _parse(frame)
        asker = f"{principal.type_}:{principal.name}"
        self.forwarded.append(
            Forwarded(key, asker, bool(principal.token_authenticated), bytes(request.client_host_address))
        )
        if self.envelope_errors:
            return {"error_code": self.envelope_errors.pop(0)}
        if key in self.answers:
            body = build_message(response_class(key, version), self.answers[key](inner))
        else:
            assert key is ApiKey.CREATE_ACLS
            body = self._create_acls(version, inner, may=asker in self.super_users)
        head = struct.pack(">i", correlation_id) + (b"\0" if type(body).__flexible__ else b"")
        return {"response_data": head + write_message(body)}

    def _create_acls(self, version: int, request: Any, *, may: bool) -> Any:
        result = message_module(ApiKey.CREATE_ACLS, version, "response").AclCreationResult
        for each in request.creations if may else ():
            self.allow(each.principal, int(each.operation), int(each.resource_type), each.resource_name)
        code = 0 if may else _CLUSTER_AUTHORIZATION_FAILED
        results = [make_message(result, {"error_code": code}) for _ in request.creations]
        return make_message(response_class(ApiKey.CREATE_ACLS, version), {"results": results})


def _parse(frame: memoryview) -> tuple[ApiKey, int, int, Any]:
    """Return what a request asks: its API, version, correlation id and message."""
    number, version, correlation_id = struct.unpack_from(">hhi", frame)
    key = ApiKey(number)
    _, position = read_client_id(frame)
    if response_class(key, version).__flexible__ or key is ApiKey.API_VERSIONS:
        position = skip_tagged_fields(frame, position)
    return key, version, correlation_id, read_request(key, version, frame, position)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, quorum: ModelQuorum) -> None:
        self.quorum = quorum
        super().__init__(("127.0.0.1", 0), _Connection)
        self.port = int(self.socket.getsockname()[1])


class _Connection(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the broker has gone
            self._answer_all()

    def _answer_all(self) -> None:
        while len(size := self.rfile.read(4)) == 4:
            frame = memoryview(self.rfile.read(int.from_bytes(size, "big")))
            key, version, correlation_id, request = _parse(frame)
            response = self.server.quorum.answer(key, version, request)
            has_tags = type(response).__flexible__ and key is not ApiKey.API_VERSIONS
            answer = struct.pack(">i", correlation_id) + (b"\0" if has_tags else b"") + write_message(response)
            self.wfile.write(struct.pack(">i", len(answer)) + answer)
