"""Answer APIs that take whole messages: read them, call their handlers and write the responses.

Large messages are read on a worker thread. The functions take the `Calls` of the connection, which keep the order, and
run on the loop's thread.
"""

from __future__ import annotations

import asyncio
import inspect
import struct
import types
from collections.abc import Coroutine, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from stratalog.broker.answered_errors import codes_of
from stratalog.broker.large_answers import has_many
from stratalog.broker.server.dispatch import Api, Chunk, RequestContext, answer_error
from stratalog.broker.server.sliced_response import SlicedResponse, write_sliced
from stratalog.errors import InvalidRequestError
from stratalog.wire import (
    ApiKey,
    EncodedResponse,
    is_flexible,
    prepare,
    put_throttle_time,
    read_client_id,
    read_request,
    skip_tagged_fields,
    write_response,
)

if TYPE_CHECKING:
    from stratalog.broker.server.calls import Calls

#: Larger messages are read on a worker thread: that is some 1,000 fields, or 2 ms.
_READ_BESIDE_BYTES: Final = 32 * 1024
#: Larger requests may have so many elements that they are worked on in pieces: 1,000 numbers of partitions.
_LARGE_BYTES: Final = 4 * 1024
#: Errors of an unreadable message.
UNREADABLE: Final = (InvalidRequestError, struct.error, IndexError, UnicodeDecodeError)


def is_read_beside(calls: Calls, frame: memoryview) -> bool:
    """Return whether to read a message on a worker thread: it is large, and there is memory for a copy."""
    return len(frame) > _READ_BESIDE_BYTES and calls.broker.large_batches.has_room(len(frame))


def prepare_message(calls: Calls, api: Api, version: int, correlation_id: int, frame: memoryview) -> None:
    """Import the code of an API's first message and read the message on a worker thread, then answer it.

    A large one waits unread until others have been answered.
    """
    calls.is_waiting = calls.is_reading = True
    message = _Unread(calls, api, version, correlation_id, frame)
    calls.broker.large_batches.hold(message.size)
    if message.is_large:
        calls.broker.large_requests.begin(message.size, message.start)
    else:
        message.start()


class _Unread:
    """A message that is read on a worker thread."""

    __slots__ = ("_api", "_calls", "_correlation_id", "_frame", "_version", "size")

    def __init__(self, calls: Calls, api: Api, version: int, correlation_id: int, frame: memoryview) -> None:
        self._calls = calls
        self._api = api
        self._version = version
        self._correlation_id = correlation_id
        self._frame = frame
        self.size = len(frame)

    @property
    def is_large(self) -> bool:
        return self.size > _READ_BESIDE_BYTES

    def start(self) -> bool:
        """Begin to read; return False if the client has gone."""
        if self._calls.line.closed:
            self._calls.broker.large_batches.hold(-self.size)
            return False
        workers = self._calls.broker.workers
        workers.submit(_prepared_and_read, self._api.key, self._version, self._frame).add_done_callback(self._go_on)
        return True

    def _go_on(self, read: asyncio.Future[Any]) -> None:
        task = self._answer(read)
        if task is None or self._api.waits:  # its wait is for other clients
            self._end()
        else:
            task.add_done_callback(self._end)

    def _end(self, _: object = None) -> None:
        self._calls.broker.large_batches.hold(-self.size)
        if self.is_large:
            self._calls.broker.large_requests.end(self.size)

    def _answer(self, read: asyncio.Future[Any]) -> asyncio.Task[None] | None:
        """Answer the message; return the task of an answer that takes longer."""
        calls, key, version = self._calls, self._api.key, self._version
        calls.is_reading = False
        error = None if read.cancelled() else read.exception()
        if calls.line.closed or read.cancelled():
            return None
        if isinstance(error, UNREADABLE):
            calls.reject(f"{key.message} v{version} request cannot be read: {error}")
            return None
        if error is not None:
            calls.reject(f"{key.message} v{version} cannot be loaded: {error}")
            return None
        calls.is_waiting = calls.is_muted
        try:
            task = answer_message(calls, self._api, version, self._correlation_id, self._frame, request=read.result())
        except Exception:  # noqa: BLE001
            calls.fail(f"{key.message} v{version}")
            return None
        if not calls.is_waiting or calls.is_muted:
            calls.respond(())
        return task


def answer_message(
    calls: Calls,
    api: Api,
    version: int,
    correlation_id: int,
    frame: memoryview,
    *,
    refusal: Exception | None = None,
    request: Any = None,
) -> asyncio.Task[None] | None:
    """Answer a message; return the task of an answer that takes longer.

    `request` was read on a worker thread; `refusal` is answered without reading the message.
    """
    key = api.key
    client_id, position = read_client_id(frame)
    ctx = RequestContext(
        calls.broker,
        key,
        version,
        correlation_id=correlation_id,
        client_id=client_id,
        peer=calls.peer,
    )
    # Where there is no memory for copies of large requests, one is answered before the next is read.
    ctx.in_one_piece = request is None and len(frame) > _READ_BESIDE_BYTES
    ctx.is_large = len(frame) > _LARGE_BYTES and not ctx.in_one_piece
    if refusal is not None:
        _answer(calls, ctx, answer_error(api, ctx, None, refusal))
        return None
    if request is None:
        request = _read(key, version, frame, position)
    assert api.handler is not None
    pace = calls.broker.quotas.pace
    if pace is not None:
        ctx.begun_s = pace.now_s()
    try:
        response = api.handler(ctx, request)
        if inspect.iscoroutine(response):
            coroutine = response
            try:
                awaited = coroutine.send(None)
            except StopIteration as stop:
                response = stop.value
            else:
                return _go_on_as_task(calls, api, ctx, request, coroutine, awaited)
    except Exception as error:  # noqa: BLE001
        if ctx.is_large:
            return _finish_later(calls, _send_large_failure(calls, api, ctx, request, error))
        _send_failure(calls, api, ctx, answer_error(api, ctx, request, error), error)
        return None
    if response is None:
        return None
    if _is_written_beside(ctx, response):
        return _finish_later(calls, _send_large(calls, ctx, response))
    _answer(calls, ctx, response)
    return None


def _finish_later(calls: Calls, rest: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    calls.is_waiting = True
    task = calls.host.loop.create_task(rest)
    calls.finish_later(task)
    return task


def _is_written_beside(ctx: RequestContext, response: Any) -> bool:
    return has_many(response) and not ctx.in_one_piece


async def _send_large(calls: Calls, ctx: RequestContext, response: Any) -> None:
    """Write a response on a worker thread, and send it."""
    await _write_large(calls, ctx, response)
    calls.respond(())


async def _write_large(calls: Calls, ctx: RequestContext, response: Any) -> None:
    try:
        answer, errors = await calls.broker.workers.run(_written_and_counted, ctx, response)
    except Exception:  # noqa: BLE001
        calls.fail(_writing(ctx))
        return
    calls.broker.answered_errors.add_counts(ctx.key, errors)
    if not calls.line.closed:
        _put(calls, ctx, answer, ())


def _written_and_counted(ctx: RequestContext, response: Any) -> tuple[bytes, Mapping[int, int]]:
    return write_response(ctx.key, ctx.correlation_id, response), codes_of(response)


def _go_on_as_task(
    calls: Calls, api: Api, ctx: RequestContext, request: Any, coroutine: Coroutine[Any, Any, Any], awaited: Any
) -> asyncio.Task[None]:
    calls.is_waiting = True
    if api.waits:
        ctx.end_work()  # the wait is not the request's own work
    task = calls.host.loop.create_task(_finish(calls, api, ctx, request, coroutine, awaited))
    if api.waits:
        calls.defer(task)
    else:
        calls.finish_later(task)
    return task


async def _finish(
    calls: Calls, api: Api, ctx: RequestContext, request: Any, coroutine: Coroutine[Any, Any, Any], awaited: Any
) -> None:
    """Run the rest of a handler that had to wait."""
    try:
        response = await _resumed(coroutine, awaited)
    except asyncio.CancelledError:
        if calls.line.closed:
            raise
        calls.reject(f"{api.key.message} was cancelled")
        return
    except Exception as error:  # noqa: BLE001
        if not calls.line.closed:
            await _write_failure(calls, api, ctx, request, error)
    else:
        if response is not None and not calls.line.closed:
            await _write(calls, ctx, response)
    calls.respond(())


async def _write(calls: Calls, ctx: RequestContext, response: Any) -> None:
    if _is_written_beside(ctx, response):
        await _write_large(calls, ctx, response)
    else:
        _answer(calls, ctx, response)


def _send_failure(calls: Calls, api: Api, ctx: RequestContext, response: Any, error: Exception) -> None:
    if response is None:
        calls.reject(f"{api.key.message} v{ctx.version} failed: {error}")
    else:
        _answer(calls, ctx, response)


async def _send_large_failure(calls: Calls, api: Api, ctx: RequestContext, request: Any, error: Exception) -> None:
    await _write_failure(calls, api, ctx, request, error)
    calls.respond(())


async def _write_failure(calls: Calls, api: Api, ctx: RequestContext, request: Any, error: Exception) -> None:
    """Answer an error; the answer to a large request may have an element for each of the request's."""
    try:
        response = await ctx.beside(answer_error, api, ctx, request, error)
    except Exception:  # noqa: BLE001
        calls.fail(_writing(ctx))
        return
    if calls.line.closed:
        return
    if response is None or not _is_written_beside(ctx, response):
        _send_failure(calls, api, ctx, response, error)
    else:
        await _write_large(calls, ctx, response)


def _answer(calls: Calls, ctx: RequestContext, response: Any) -> None:
    """Count the error codes of a response, and send it."""
    errors = calls.broker.answered_errors
    if isinstance(response, EncodedResponse):
        errors.add_counts(ctx.key, response.errors)
    else:
        errors.add_message(ctx.key, response.message if isinstance(response, SlicedResponse) else response)
    send_response(calls, ctx, response)


def send_response(calls: Calls, ctx: RequestContext, response: Any) -> None:
    try:
        rest: Sequence[Chunk] = ()
        if isinstance(response, SlicedResponse):
            answer, rest = write_sliced(ctx.key, ctx.correlation_id, response)
        else:
            answer = write_response(ctx.key, ctx.correlation_id, response)
    except Exception:  # noqa: BLE001
        calls.fail(_writing(ctx))
    else:
        _put(calls, ctx, answer, rest)


def _put(calls: Calls, ctx: RequestContext, answer: bytes, rest: Sequence[Chunk]) -> None:
    """Queue the bytes of a response, with the throttle time of its client."""
    try:
        throttle = ctx.throttle()
        if throttle is not None:
            answer = put_throttle_time(ctx.key, ctx.version, answer, throttle.ms)
            calls.throttle(throttle)
    except Exception:  # noqa: BLE001
        calls.fail(_writing(ctx))
    else:
        calls.put(answer, *rest)


def _writing(ctx: RequestContext) -> str:
    return f"writing the response to {ctx.key.message} v{ctx.version}"


def _read(key: ApiKey, version: int, frame: memoryview, position: int) -> Any:
    """Read the message after the client id, which ends at `position`."""
    if is_flexible(key, version):
        position = skip_tagged_fields(frame, position)
    return read_request(key, version, frame, position)


def _prepared_and_read(key: ApiKey, version: int, frame: memoryview) -> Any:
    prepare(key, version)
    _, position = read_client_id(frame)
    return _read(key, version, frame, position)


@types.coroutine
def _resumed(coroutine: Coroutine[Any, Any, Any], awaited: Any) -> Generator[Any, Any, Any]:
    """Continue a coroutine that was run by hand until it awaited `awaited`."""
    while True:
        try:
            sent = yield awaited
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:  # noqa: BLE001
            step, argument = coroutine.throw, error
        else:
            step, argument = coroutine.send, sent  # type: ignore[assignment]
        try:
            awaited = step(argument)
        except StopIteration as stop:
            return stop.value
