"""Answer the requests of one connection in order. Knows no socket: frames in, bytes and file ranges out.

As in Kafka, one request of a connection is worked on at a time, and nothing more is read while its answer is out. So
answers keep their order, and a client that does not read its answers stops being read.
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

#: Answers to pipelined requests that are kept back to go out together.
_QUEUE_CHUNKS_MAX: Final = 256
_QUEUE_BYTES_MAX: Final = 128 * 1024
#: What requests are called, by their API.
_NAMES: Final = {key: key.message for key in ApiKey}
#: After so long the other connections have their turn, if there are more requests.
_TURN_S: Final = 0.002


class CallHost(Protocol):
    """What calls need of the server."""

    services: BrokerServices
    apis: Registry
    loop: asyncio.AbstractEventLoop
    closings: ClosingLog

    def finish(self, task: asyncio.Task[None]) -> None: ...


class Line(Protocol):
    """The way to the client."""

    peer: Peer
    closed: bool
    #: Whether answers wait for the client to read.
    is_stuck: bool

    def flush(self) -> None:
        """Send what is in `Calls.out`, as far as the client takes it."""
        ...

    def proceed(self) -> None:
        """Go on with the next request, as a call has ended."""
        ...

    def close(self) -> None: ...

    def wait_for_turn(self) -> None:
        """Go on with the next request when others have had their turn."""
        ...

    def let_in(self) -> None:
        """Take requests of any size, as the client has said who it is."""
        ...


class _OpenRequest:
    """When a request was received and begun."""

    __slots__ = ("begun", "key", "name", "received", "size", "version", "worked")

    def __init__(self, key: ApiKey, version: int, size: int, received: float, begun: float) -> None:
        self.key = key
        self.name = _NAMES[key]
        self.version = version
        self.size = size
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
        #: Bytes of messages among them, at the most, since they were last sent on the way.
        self._queued_bytes = 0
        #: Whether no further request is taken: the answer to one comes later, or the client has to wait.
        self.is_waiting = False
        #: The end of the time for which the client has to wait, and the quota that it has to wait for.
        self._muted: tuple[QuotaTimer, QuotaMeter] | None = None
        #: What is cancelled when the connection goes, and what is finished all the same.
        self._deferred: Deferred | asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        #: The APIs that answer frames, as this connection has used them.
        self._frame_apis: dict[int, FrameApi] = {}
        #: Copies of requests that wait for the one in progress.
        self._left: deque[bytearray] = deque()
        #: The short way for requests that are like one before.
        self._template: Template | None = None
        #: When the last requests were received, and the last reading of the clock.
        self._received = self._now = 0.0
        #: The request that is worked on, and how long its client has to wait.
        self._open: _OpenRequest | None = None
        self._throttle_ms = 0
        #: Requests whose answers are in `out`, or go without one.
        self._unsent: list[tuple[NamedRequestTimes, RequestNote]] = []

    def close(self) -> None:
        """Cancel what waits; leave to the server what has to be finished."""
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
        """Answer the next request the long way, whatever it is like."""
        self._template = None
        self._frame_apis.clear()

    # --- for the connection -------------------------------------------------------------------------------------------

    def answer(self, frames: Iterable[memoryview]) -> None:
        """Answer requests until one has to wait. Frames may be overwritten afterwards.

        An InvalidRequestError of `frames` ends the connection, once what came before has been answered.
        """
        line = self.line
        # Requests that the template answers, and their records: views that must not outlive this call.
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
        """Count the time of all requests so far: their answers are on the way."""
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
        """Yield requests that `answer` took and could not answer, as one before them had to wait."""
        while self._left:
            yield memoryview(self._left.popleft())

    def reject(self, why: object) -> None:
        """Close on a client that does not speak the protocol, with one line in the log.

        Answers to its requests before go out first, as far as its socket takes them: they have been done.
        """
        if not self.line.closed:
            self.host.closings.warn(self.peer.client_host, why)
            self.line.flush()
            self.line.close()

    def fail(self, what: str) -> None:
        """Close after an error of our own. A connection never goes on behind one: what it was doing is half done."""
        logger.exception("Closing the connection from %s: %s failed", self.peer.client_host, what)
        if not self.line.closed:
            self.line.flush()
        self.line.close()

    # --- for the APIs -------------------------------------------------------------------------------------------------

    @property
    def is_muted(self) -> bool:
        """Whether the client has to wait because of its quotas."""
        return self._muted is not None

    def throttle(self, throttle: QuotaThrottle) -> None:
        """Take no further request for so long, once the answer to this one is on its way."""
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
        """Wait for something else than before, for the same answer. It is cancelled when the connection goes."""
        self._deferred = deferred

    def finish_later(self, task: asyncio.Task[None]) -> None:
        """Wait for a task that is finished even when the connection goes."""
        self._task = task

    def put(self, answer: bytes) -> None:
        """Add the answer to a message to those that go out."""
        self.out.append(answer)
        self._queued_bytes += len(answer)

    def respond(self, chunks: Sequence[Chunk]) -> None:
        """Send the answer to the request that waits, and go on with what has come since."""
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
        """Read the clock, as the broker's own part of a request is done; its answer may have to wait."""
        self._now = perf_counter()
        request = self._open
        if request is not None:
            request.worked = self._now
            if not self.is_waiting or self._muted is not None:
                self._note(request)

    def _note(self, request: _OpenRequest) -> None:
        """Keep the times of a request that has been answered."""
        self._open = None
        throttle_ms, self._throttle_ms = self._throttle_ms, 0
        note = RequestNote(
            request.version,
            requests=1,
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

    def _note_alike(self, frames: list[memoryview]) -> None:
        begun, self._now = self._now, perf_counter()
        _, version, _ = REQUEST_HEAD.unpack_from(frames[0])
        count = len(frames)
        note = RequestNote(
            version,
            requests=count,
            size=sum(map(len, frames)) / count,
            received=self._received,
            begun=begun,
            worked=self._now,
            answered=self._now,
        )
        self._unsent.append((self.broker.request_times.of("Produce"), note))

    # --- requests -----------------------------------------------------------------------------------------------------

    def _take(self, frame: memoryview) -> None:
        self._handle(frame)
        self._end_work()

    def _handle(self, frame: memoryview) -> None:
        """Answer one request, or begin to; `frame` is without its size."""
        key, version, correlation_id = REQUEST_HEAD.unpack_from(frame)
        api = self.host.apis.get(key)
        if api is None:
            self.reject(f"API key {key} is not served here")
            return
        if not api.min_version <= version <= api.max_version:
            if key == ApiKey.API_VERSIONS:
                answer_message(
                    self, api, 0, correlation_id, frame, refusal=UnsupportedVersionError(f"version {version}")
                )
            else:
                self.reject(f"{api.key.message} v{version}, but v{api.min_version} to v{api.max_version} are served")
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
        if isinstance(answer, Deferred):
            self._deferred = answer
            self.is_waiting = True
            return
        if frame_api.template is not None:
            self._template = frame_api.template
        if answer:
            self.out.extend(answer)
            if len(answer) > 1:  # file ranges: the next request waits until the client has taken them
                self._end_work()
                self.line.flush()

    def _answer_alike(self, frames: list[memoryview], records: list[memoryview]) -> None:
        """Answer requests that are like the template's, one by one if it cannot; both lists are empty afterwards."""
        if not frames or self.line.closed:
            return
        template = self._template
        assert template is not None
        try:
            answers = template.answer(frames, records)
        except Exception:  # noqa: BLE001
            self.fail("Produce")
            return
        if answers is not None:
            self.out.extend(answers)
            self._note_alike(frames)
        else:
            for number, frame in enumerate(frames):
                if self.is_waiting:
                    self._left.extend(map(bytearray, frames[number:]))
                    break
                if not self.line.closed:
                    self._take(frame)
        frames.clear()
        records.clear()
