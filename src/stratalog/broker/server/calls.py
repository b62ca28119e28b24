"""Answer the requests of one connection in order: frames in, bytes and file ranges out. Independent of sockets.

As in Kafka, a connection has one request in progress, and reads no other until its answer is sent. So answers keep
their order, and a client that does not read its answers is not read from.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

from stratalog.broker.quotas import QuotaMeter, QuotaThrottle, QuotaTimer
from stratalog.broker.request_times import NamedRequestTimes, RequestNote
from stratalog.broker.security import Peer
from stratalog.broker.server.closing_log import ClosingLog
from stratalog.broker.server.dispatch import (
    Api,
    Chunk,
    Deferred,
    FrameApi,
    Registry,
    Template,
)
from stratalog.broker.server.message_calls import UNREADABLE, answer_message, is_read_beside, prepare_message
from stratalog.errors import InvalidRequestError, UnsupportedVersionError
from stratalog.log.format import FileSlice
from stratalog.wire import (
    INT16,
    REQUEST_HEAD,
    ApiKey,
    is_prepared,
    skip_tagged_fields,
)

if TYPE_CHECKING:
    from stratalog.broker.services import BrokerServices

logger = logging.getLogger(__name__)

#: Limits of the answers to pipelined requests that are collected and sent together.
_QUEUE_CHUNKS_MAX: Final = 256
_QUEUE_BYTES_MAX: Final = 128 * 1024
#: Names of requests, by API.
_NAMES: Final = {key: key.message for key in ApiKey}
#: After this time other connections get their turn, even if more requests have arrived: less than most of their own
#: requests take, so that they do not notice it.
_TURN_S: Final = 0.00025


class CallHost(Protocol):
    """The server, as calls need it."""

    services: BrokerServices
    apis: Registry
    loop: asyncio.AbstractEventLoop
    closings: ClosingLog

    def finish(self, task: asyncio.Task[None]) -> None: ...


class Line(Protocol):
    """The connection to the client."""

    peer: Peer
    closed: bool
    #: Whether answers wait for the client to read.
    is_stuck: bool

    def flush(self) -> None:
        """Send what is in `Calls.out`, as far as the socket takes it."""
        ...

    def proceed(self) -> None:
        """Continue with the next request: a call has ended."""
        ...

    def close(self) -> None: ...

    def wait_for_turn(self) -> None:
        """Continue with the next request after other connections had their turn."""
        ...

    def let_in(self) -> None:
        """Accept requests of any size: the client has authenticated."""
        ...


class _OpenRequest:
    """When a request was received and started; or `count` alike, which are answered together."""

    __slots__ = ("begun", "count", "key", "name", "received", "size", "version", "worked")

    def __init__(self, key: ApiKey, version: int, size: float, received: float, begun: float, count: int = 1) -> None:
        """`size`: of the request in bytes, on average."""
        self.key = key
        self.name = _NAMES[key]
        self.version = version
        self.size = size
        self.count = count
        self.received = received
        self.begun = self.worked = begun


class Calls:
    """The calls of one connection. Belongs to the loop's thread."""

    __slots__ = (
        "_deferred",
        "_frame_apis",
        "_left",
        "_muted",
        "_now",
        "_open",
        "_queued_bytes",
        "_received",
        "_task",
        "_template",
        "_throttle_ms",
        "_unsent",
        "broker",
        "host",
        "is_reading",
        "is_waiting",
        "line",
        "out",
        "peer",
    )

    def __init__(self, host: CallHost, line: Line) -> None:
        self.host = host
        self.line = line
        self.broker = host.services
        self.peer = line.peer
        #: Answers in order, for the connection to send.
        self.out: list[Chunk] = []
        #: Upper bound of the bytes of messages in `out` since the last flush.
        self._queued_bytes = 0
        #: Whether no further request is taken: an answer is pending, or the client is throttled.
        self.is_waiting = False
        #: Whether the request in progress is still being read, on another thread: nothing of it is done yet.
        self.is_reading = False
        #: The end of the throttle time, and the quota that was exceeded.
        self._muted: tuple[QuotaTimer, QuotaMeter] | None = None
        #: What is cancelled when the connection closes, and what is finished all the same.
        self._deferred: Deferred | asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        #: The frame APIs that this connection has used.
        self._frame_apis: dict[int, FrameApi] = {}
        #: Copies of requests that wait for the one in progress.
        self._left: deque[bytearray] = deque()
        #: The fast path for requests that are like the last one.
        self._template: Template | None = None
        #: When the last requests were received, and the last reading of the clock.
        self._received = self._now = 0.0
        #: The request in progress, and its throttle time.
        self._open: _OpenRequest | None = None
        self._throttle_ms = 0
        #: Requests whose answers are in `out`, or that get no answer.
        self._unsent: list[tuple[NamedRequestTimes, RequestNote]] = []

    def close(self) -> None:
        """Cancel requests that wait; leave to the server those that must be finished."""
        self.out.clear()
        self._left.clear()
        self._unsent.clear()
        self._open = None
        self._template = None
        self._frame_apis.clear()
        deferred, self._deferred = self._deferred, None
        if deferred is not None:
            deferred.cancel()
        task, self._task = self._task, None
        if task is not None:
            self.host.finish(task)
        self._stop_muting()
        self.broker.share_leader.connection_lost(self.peer)

    def forget_templates(self) -> None:
        """Parse the next request in full, even if it is like the last one."""
        self._template = None
        self._frame_apis.clear()

    # --- for the connection -------------------------------------------------------------------------------------------

    def answer(self, frames: Iterable[memoryview]) -> None:
        """Answer requests until one has to wait. Frames may be overwritten afterwards.

        An InvalidRequestError of `frames` closes the connection after the requests before it were answered.
        """
        line = self.line
        # Requests for the template, and their records: views that must not outlive this call.
        alike: list[memoryview] = []
        records: list[memoryview] = []
        self._received = self._now = perf_counter()
        until = self._received + _TURN_S
        try:
            for frame in frames:
                template = self._template
                found = None if template is None else template.records_of(frame)
                if found is not None:
                    alike.append(frame)
                    records.append(found)
                    continue
                if alike:
                    self._answer_alike(alike, records)
                    if line.closed:
                        return
                    if self.is_waiting:
                        self._left.append(bytearray(frame))
                        break
                self._take(frame)
                if len(self.out) > _QUEUE_CHUNKS_MAX or self._queued_bytes > _QUEUE_BYTES_MAX:
                    self._queued_bytes = 0
                    line.flush()
                if self.is_waiting or line.is_stuck or line.closed:
                    break
                if self._now > until:
                    line.wait_for_turn()
                    break
        except InvalidRequestError as error:
            self._answer_alike(alike, records)
            self.reject(error)
            return
        self._answer_alike(alike, records)
        self._send()

    def _send(self) -> None:
        if self.out and not self.line.closed:
            self.line.flush()
        elif self._unsent:  # requests that get no answer
            self.note_sent()

    def note_sent(self) -> None:
        """Record the times of all requests so far: their answers are sent."""
        if self._unsent:
            flushed, self._now = self._now, perf_counter()
            for times, note in self._unsent:
                times.add(note, flushed, self._now)
            self._unsent.clear()

    @property
    def has_left(self) -> bool:
        return bool(self._left)

    @property
    def left_bytes(self) -> int:
        """Memory of the requests that `left` yields."""
        return sum(map(len, self._left))

    def left(self) -> Iterator[memoryview]:
        """Yield requests that `answer` took but could not answer because one before them had to wait."""
        while self._left:
            yield memoryview(self._left.popleft())

    def reject(self, why: object) -> None:
        """Close the connection of a client that violates the protocol, and log one line.

        Answers to earlier requests go out first, as far as the socket takes them.
        """
        if not self.line.closed:
            self.host.closings.warn(self.peer.client_host, why)
            self.line.flush()
            self.line.close()

    def fail(self, what: str) -> None:
        """Close after an error of the broker itself: the request is half done, so no other may follow it."""
        logger.exception("Closing the connection from %s: %s failed", self.peer.client_host, what)
        if not self.line.closed:
            self.line.flush()
        self.line.close()

    # --- for the APIs -------------------------------------------------------------------------------------------------

    @property
    def is_muted(self) -> bool:
        """Whether the client is throttled by its quotas."""
        return self._muted is not None

    def throttle(self, throttle: QuotaThrottle) -> None:
        """Take no further request for the throttle time, once the answer to this one is sent."""
        if self._muted is None and not self.line.closed:
            self.is_waiting = True
            self._throttle_ms = throttle.ms
            throttle.meter.queue_size += 1
            timer = self.broker.quotas.call_later(throttle.ms / 1000, self._listen_again)
            self._muted = timer, throttle.meter

    def _listen_again(self) -> None:
        if self._muted is not None:
            self._stop_muting()
            self.is_waiting = False
            self.line.proceed()

    def _stop_muting(self) -> None:
        muted, self._muted = self._muted, None
        if muted is not None:
            timer, meter = muted
            timer.cancel()
            meter.queue_size -= 1

    def defer(self, deferred: Deferred | asyncio.Task[None]) -> None:
        """Replace what the pending answer waits for. It is cancelled when the connection closes."""
        self._deferred = deferred

    def finish_later(self, task: asyncio.Task[None]) -> None:
        """Wait for a task that is finished even when the connection closes."""
        self._task = task

    def put(self, *answer: Chunk) -> None:
        """Queue the answer to a message."""
        self.out.extend(answer)
        self._queued_bytes += sum(len(chunk) for chunk in answer if not isinstance(chunk, FileSlice))

    def respond(self, chunks: Sequence[Chunk]) -> None:
        """Send the pending answer, and continue with the requests behind it."""
        if self.line.closed:
            return
        self._deferred = self._task = None
        self.is_waiting = self._muted is not None
        self.out.extend(chunks)
        self._now = perf_counter()
        if self._open is not None:
            self._note(self._open)
        self._send()
        if not self.line.closed:
            self.line.proceed()

    # --- time ---------------------------------------------------------------------------------------------------------

    def _end_work(self) -> None:
        """Record when the broker's own work on a request ended; its answer may still have to wait."""
        self._now = perf_counter()
        request = self._open
        if request is not None:
            request.worked = self._now
            if not self.is_waiting or self._muted is not None:
                self._note(request)

    def _note(self, request: _OpenRequest) -> None:
        """Record the times of a request that has been answered."""
        self._open = None
        throttle_ms, self._throttle_ms = self._throttle_ms, 0
        note = RequestNote(
            request.version,
            requests=request.count,
            size=request.size,
            received=request.received,
            begun=request.begun,
            worked=request.worked,
            answered=self._now,
            throttle_ms=throttle_ms,
        )
        all_times = self.broker.request_times
        self._unsent.append((all_times.of(request.name), note))
        frame_api = self._frame_apis.get(request.key)
        if frame_api is not None and frame_api.second_name:
            self._unsent.append((all_times.of(frame_api.second_name), note))

    # --- requests -----------------------------------------------------------------------------------------------------

    def _take(self, frame: memoryview) -> None:
        self._handle(frame)
        self._end_work()

    def _handle(self, frame: memoryview) -> None:
        """Answer one request, or start to. `frame` excludes the size field."""
        key, version, correlation_id = REQUEST_HEAD.unpack_from(frame)
        api = self.host.apis.get(key)
        if api is None:
            self.reject(f"API key {key} is not supported")
            return
        if not api.min_version <= version <= api.max_version:
            if key == ApiKey.API_VERSIONS:
                answer_message(
                    self, api, 0, correlation_id, frame, refusal=UnsupportedVersionError(f"version {version}")
                )
            else:
                self.reject(
                    f"{api.key.message} v{version} is not supported, only v{api.min_version} to v{api.max_version}"
                )
            return
        self._work_on(api, version, correlation_id, frame)

    def _work_on(self, api: Api, version: int, correlation_id: int, frame: memoryview) -> None:
        if self._open is None:
            self._open = _OpenRequest(api.key, version, len(frame), self._received, self._now)
        try:
            if api.frames is not None:
                self._answer_frame(api, api.frames, version, correlation_id, frame)
            elif is_prepared(api.key, version) and not is_read_beside(self, frame):
                answer_message(self, api, version, correlation_id, frame)
            else:
                prepare_message(self, api, version, correlation_id, memoryview(bytes(frame)))
        except UNREADABLE as error:
            self.reject(f"{api.key.message} v{version} request cannot be read: {error}")
        except Exception:  # noqa: BLE001
            self.fail(f"{api.key.message} v{version}")

    # --- APIs that take bytes -----------------------------------------------------------------------------------------

    def _answer_frame(
        self,
        api: Api,
        make: Callable[[Calls], FrameApi],
        version: int,
        correlation_id: int,
        frame: memoryview,
    ) -> None:
        frame_api = self._frame_apis.get(api.key)
        if frame_api is None:
            frame_api = self._frame_apis[api.key] = make(self)
        (client_id_size,) = INT16.unpack_from(frame, 8)
        position = 10 + client_id_size if client_id_size > 0 else 10
        if version >= api.flexible_from:
            position = skip_tagged_fields(frame, position)
        answer = frame_api.answer(version, correlation_id, frame, position)
        if frame_api.template is not None:
            self._template = frame_api.template
        if isinstance(answer, Deferred):
            self._wait_for(answer)
        elif answer:
            self.out.extend(answer)
            if len(answer) > 1:  # file ranges: the next request waits until the client has taken them
                self._end_work()
                self.line.flush()

    def _wait_for(self, deferred: Deferred) -> None:
        self._deferred = deferred
        self.is_waiting = True

    def _answer_alike(self, frames: list[memoryview], records: list[memoryview]) -> None:
        """Answer requests that fit the template, one by one if it cannot; both lists are empty afterwards."""
        if not frames or self.line.closed:
            return
        template = self._template
        assert template is not None
        begun = self._now
        try:
            answers = template.answer(frames, records)
        except Exception:  # noqa: BLE001
            self.fail("Produce")
            return
        if answers is not None:
            _, version, _ = REQUEST_HEAD.unpack_from(frames[0])
            count = len(frames)
            size = sum(map(len, frames)) / count
            self._open = _OpenRequest(ApiKey.PRODUCE, version, size, self._received, begun, count)
            if isinstance(answers, Deferred):
                self._wait_for(answers)
            else:
                self.out.extend(answers)
                self.broker.answered_errors.add(ApiKey.PRODUCE, 0, count)  # one partition each, without an error
            self._end_work()
        else:
            for number, frame in enumerate(frames):
                if self.is_waiting:
                    self._left.extend(map(bytearray, frames[number:]))
                    break
                if not self.line.closed:
                    self._take(frame)
        frames.clear()
        records.clear()
