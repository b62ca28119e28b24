"""One client's connection: bytes in, requests answered in order, bytes and file ranges out.

The broker owns the whole path: a non-blocking socket, watched by the event loop for readiness. Against transports of
the loop that saves a copy of everything that is received, and lets the kernel send segments by itself (sendfile), which
uvloop has no call for.

As in Kafka, one request of a connection is worked on at a time, and nothing more is read while its answer is out. So
answers keep their order, and a client that does not read its answers stops being read. What was received behind the
request in work stays in `_backlog`.

Frames up to half of the shared scratch buffer are parsed where the socket's bytes were put; larger ones are received
into a buffer of their own, from a pool. Both are writable, so that an append can stamp offsets in place, and both are
used again as soon as the handler has returned.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
import logging
import os
import select
import socket
import struct
import types
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from stratalog.broker.server.dispatch import Api, Registry, RequestContext, answer_error
from stratalog.errors import InvalidRequestError, StratalogError, UnsupportedVersionError
from stratalog.log.format.values import FileSlice
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.protocol import (
    INT16,
    INT32,
    REQUEST_HEAD,
    is_flexible,
    read_client_id,
    read_request,
    skip_tagged_fields,
    write_response,
)

if TYPE_CHECKING:
    from stratalog.broker.state import BrokerState

logger = logging.getLogger(__name__)

#: What goes out: bytes, or a range of a file that the kernel sends by itself.
Chunk = bytes | bytearray | memoryview | FileSlice

#: What a frame handler returns when it will call `Connection.respond` later.
PENDING: Final[Sequence[Chunk]] = (b"pending",)

#: The size of a request is at least that of its header.
_REQUEST_BYTES_MIN = REQUEST_HEAD.size + 2
#: The buffer of a large request grows with what really arrives: never more than so many times that, or this at first.
_LARGE_GROWTH = 4
_LARGE_BUFFER_BYTES = 4096
#: How much is received at once where a large request is expected, so that little of it has to be moved.
_EXPECT_LARGE_BYTES = 4096
#: Smaller pieces are joined for one system call.
_JOIN_BYTES_MAX = 32 * 1024
#: Piece of a file that goes through memory where there is no sendfile.
_COPY_BYTES = 256 * 1024
#: After so much the other connections have their turn, however fast this client reads (as with Kafka: a write a turn).
_TURN_BYTES = 512 * 1024
#: Answers to pipelined requests that are kept back to go out together.
_QUEUE_CHUNKS_MAX = 256

#: What the kernel says of a connection whose other side has closed it.
_ENDED = getattr(select, "POLLRDHUP", 0)
_MSG_MORE = getattr(socket, "MSG_MORE", 0)
_SENDFILE: Callable[[int, int, int, int], int] | None = getattr(os, "sendfile", None)
_NO_SENDFILE_ERRNOS = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}

# Why nothing more is read.
_REQUEST_IN_WORK = 1
_OUTPUT_STUCK = 2


class Pending(Protocol):
    """A request whose answer comes later."""

    def cancel(self) -> object:
        """The connection is gone: nobody waits for the answer any more."""
        ...


class Template(Protocol):
    """Answers requests that are like one before, several at once (see `produce_template`). Keeps none of them."""

    def records_of(self, frame: memoryview) -> memoryview | None: ...
    def answer(self, frames: Sequence[memoryview], records: Sequence[memoryview]) -> Sequence[bytes] | None: ...


class Host(Protocol):
    """What a connection needs of its server."""

    state: BrokerState
    apis: Registry
    loop: asyncio.AbstractEventLoop
    request_bytes_max: int
    #: Where every connection receives small requests; nothing in it outlives a callback.
    scratch: memoryview

    def take_buffer(self, size: int, wanted: int) -> bytearray: ...
    def give_buffer(self, buffer: bytearray) -> None: ...
    def forget(self, connection: Connection) -> None: ...
    def finish(self, task: asyncio.Task[None]) -> None: ...
    def stay_awake(self) -> None: ...


class Connection:
    """Belongs to the loop's thread."""

    __slots__ = (
        "_backlog",
        "_backlog_at",
        "_expect_large",
        "_fd",
        "_file_sent",
        "_held",
        "_host",
        "_large",
        "_large_need",
        "_large_used",
        "_out",
        "_reading",
        "_sock",
        "_unfinished",
        "active_at",
        "client_host",
        "closed",
        "last_partition",
        "local_host",
        "pending",
        "state",
        "template",
    )

    def __init__(self, host: Host, sock: socket.socket, client_host: str, local_host: str) -> None:
        self._host = host
        self._sock = sock
        self._fd = sock.fileno()
        self.state = host.state
        self.client_host = client_host
        #: The address of ours that the client reached.
        self.local_host = local_host
        #: Loop time when the client last sent something, or took something of what waits for it.
        self.active_at = host.loop.time()
        self.closed = False
        #: What has to be cancelled when the connection goes, and what has to be finished all the same.
        self.pending: Pending | None = None
        self._unfinished: asyncio.Task[None] | None = None
        #: The short way for requests that are like the last one.
        self.template: Template | None = None
        #: Where the last Produce request went.
        self.last_partition: object = None
        self._held = 0
        self._reading = True
        self._backlog = bytearray()
        self._backlog_at = 0
        self._large: bytearray | None = None
        self._large_used = 0
        self._large_need = 0
        self._expect_large = False
        self._out: list[Chunk] = []
        self._file_sent = 0
        host.loop.add_reader(self._fd, self._on_readable)

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether nothing is awaited but the client: its next request, or that it reads its answers."""
        return self._held != _REQUEST_IN_WORK

    def is_abandoned(self) -> bool:
        """Whether the client has gone behind bytes that have to wait, so that reading does not show it."""
        if self._reading:
            return False
        poll = select.poll()
        poll.register(self._fd, _ENDED)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close at once; what is pending is cancelled. Harmless when called again."""
        if self.closed:
            return
        self.closed = True
        loop = self._host.loop
        loop.remove_reader(self._fd)
        if self._held & _OUTPUT_STUCK:
            loop.remove_writer(self._fd)
        self._sock.close()
        self._out.clear()
        self._backlog = bytearray()
        self.template = None
        self.last_partition = None
        if self._large is not None:
            self._host.give_buffer(self._large)
            self._large = None
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.cancel()
        unfinished, self._unfinished = self._unfinished, None
        if unfinished is not None:
            self._host.finish(unfinished)
        self._host.forget(self)

    def reject(self, why: object) -> None:
        """Close on a client that does not speak the protocol, with one line in the log.

        Answers to its requests before go out first, as far as its socket takes them: they have been done.
        """
        if not self.closed:
            logger.warning("Closing the connection from %s: %s", self.client_host, why)
            self._flush()
            self.close()

    # --- receiving ----------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        if self._held:
            self._look()
            return
        self.active_at = self._host.loop.time()
        try:
            if self._large is not None or self._receive():
                self._receive_large()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # reset by the client
            self.close()
        except Exception:
            self._fail("a request")
        else:
            self._host.stay_awake()

    def _fail(self, what: str) -> None:
        """Close after an error of our own. A connection never goes on behind one: what it was doing is half done."""
        logger.exception("Closing the connection from %s: %s failed", self.client_host, what)
        if not self.closed:
            self._flush()
        self.close()

    def _look(self) -> None:
        """Readable while a request is in work: the client has gone, or there is more that has to wait."""
        try:
            if self._sock.recv(1, socket.MSG_PEEK):
                self._host.loop.remove_reader(self._fd)
                self._reading = False
            else:
                self.close()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()

    def _receive(self) -> bool:
        """Receive into the scratch buffer and work on it; True when a large request has begun and may go on at once."""
        scratch = self._host.scratch
        begin = 0
        if self._backlog:
            begin = len(self._backlog) - self._backlog_at
            scratch[:begin] = memoryview(self._backlog)[self._backlog_at :]
            self._backlog = bytearray()
            self._backlog_at = 0
        end = begin + _EXPECT_LARGE_BYTES if self._expect_large else len(scratch)
        received = self._sock.recv_into(scratch[begin:end])
        if not received:
            self.close()
            return False
        used = begin + received
        done = self._consume(scratch, 0, used)
        if 0 <= done < used:
            self._backlog = bytearray(scratch[done:used])
        return self._large is not None and not self._held

    def _receive_large(self) -> None:
        """Receive the rest of a large request and work on it when it is whole."""
        buffer = self._large
        assert buffer is not None
        if self._large_used == len(buffer):
            buffer = self._grow(buffer)
        end = min(self._large_need, len(buffer))
        received = self._sock.recv_into(memoryview(buffer)[self._large_used : end])
        if not received:
            self.close()
            return
        self._large_used += received
        if self._large_used == self._large_need:
            self._large = None
            try:
                self._handle_alone(memoryview(buffer)[4 : self._large_need])
                if self._out and not self.closed:
                    self._flush()
            finally:
                self._host.give_buffer(buffer)

    def _grow(self, buffer: bytearray) -> bytearray:
        need = self._large_need
        larger = self._host.take_buffer(min(need, _LARGE_GROWTH * len(buffer)), need)
        larger[: self._large_used] = memoryview(buffer)[: self._large_used]
        self._host.give_buffer(buffer)
        self._large = larger
        return larger

    def _consume(self, view: memoryview, position: int, end: int) -> int:
        """Work on the whole requests in view[position:end] until one has to wait.

        Returns where it stopped; -1 when the connection was closed.
        """
        host = self._host
        unpack_size = INT32.unpack_from
        # Requests that the template answers, and their records: views that must not outlive this call.
        frames: list[memoryview] = []
        records: list[memoryview] = []
        while end - position >= 4:
            (size,) = unpack_size(view, position)
            if not _REQUEST_BYTES_MIN <= size <= host.request_bytes_max:
                self._answer_alike(frames, records)
                self.reject(_bad_size(size, host.request_bytes_max))
                return -1
            next_position = position + 4 + size
            if next_position > end:
                self._expect_large = size > len(host.scratch) // 2
                if self._expect_large:
                    self._begin_large(view[position:end], 4 + size)
                    position = end
                break
            frame = view[position + 4 : next_position]
            template = self.template
            found = None if template is None else template.records_of(frame)
            if found is None:
                self._answer_alike(frames, records)
                if self.closed:
                    break
                self._handle(frame)
            else:
                frames.append(frame)
                records.append(found)
            position = next_position
            self._expect_large = False
            if len(self._out) > _QUEUE_CHUNKS_MAX:
                self._flush()
            if self._held or self.closed:
                break
        self._answer_alike(frames, records)
        if self._out and not self.closed:
            self._flush()
        return -1 if self.closed else position

    def _begin_large(self, begun: memoryview, need: int) -> None:
        size = min(need, max(_LARGE_BUFFER_BYTES, _LARGE_GROWTH * len(begun)))
        self._large = buffer = self._host.take_buffer(size, need)
        buffer[: len(begun)] = begun
        self._large_used = len(begun)
        self._large_need = need

    def _release(self, reason: int) -> None:
        """One reason to read nothing more is gone; go on when it was the last."""
        self._held &= ~reason
        try:
            self._go_on()
        except Exception:
            self._fail("a request")

    def _go_on(self) -> None:
        while not self._held and not self.closed and self._backlog_at < len(self._backlog):
            backlog = self._backlog
            before = self._backlog_at
            done = self._consume(memoryview(backlog), before, len(backlog))
            if done < 0:
                return
            if done == len(backlog):
                self._backlog = bytearray()
                self._backlog_at = 0
            else:
                self._backlog_at = done
                if done == before:
                    break
        if not self._held and not self._reading and not self.closed:
            self._reading = True
            self._host.loop.add_reader(self._fd, self._on_readable)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _handle(self, frame: memoryview) -> None:
        """Answer one request, or begin to; `frame` is without its size and may be overwritten afterwards."""
        key, version, correlation_id = REQUEST_HEAD.unpack_from(frame)
        api = self._host.apis.get(key)
        if api is None:
            self.reject(f"API key {key} is not served here")
            return
        if not api.min_version <= version <= api.max_version:
            if key == ApiKey.API_VERSIONS:
                self._answer_generic(api, 0, correlation_id, frame, UnsupportedVersionError(f"version {version}"))
            else:
                self.reject(f"{api.key.message} v{version}, but v{api.min_version} to v{api.max_version} are served")
            return
        try:
            if api.frames is None:
                self._answer_generic(api, version, correlation_id, frame, None)
                return
            (client_id_size,) = INT16.unpack_from(frame, 8)
            position = 10 + client_id_size if client_id_size > 0 else 10
            if version >= api.flexible_from:
                position = skip_tagged_fields(frame, position)
            chunks = api.frames(self, version, correlation_id, frame, position)
        except (InvalidRequestError, struct.error, IndexError, UnicodeDecodeError) as error:
            self.reject(f"{api.key.message} v{version} request cannot be read: {error}")
            return
        except Exception:
            self._fail(f"{api.key.message} v{version}")
            return
        if chunks is PENDING:
            self._held |= _REQUEST_IN_WORK
        elif chunks:
            self._out.extend(chunks)
            if len(chunks) > 1:  # file ranges: the next request waits until the client has taken them
                self._flush()

    def _handle_alone(self, frame: memoryview) -> None:
        """Answer one request by whichever way there is."""
        template = self.template
        records = None if template is None else template.records_of(frame)
        if records is None:
            self._handle(frame)
        else:
            self._answer_alike([frame], [records])

    def _answer_alike(self, frames: list[memoryview], records: list[memoryview]) -> None:
        """Answer requests that are like the template's, one by one if it cannot; both lists are empty afterwards."""
        if not frames or self.closed:
            return
        template = self.template
        assert template is not None
        try:
            answers = template.answer(frames, records)
        except Exception:
            self._fail("Produce")
            return
        if answers is not None:
            self._out.extend(answers)
        else:
            for frame in frames:
                if not self.closed:
                    self._handle(frame)
        frames.clear()
        records.clear()

    def _answer_generic(
        self, api: Api, version: int, correlation_id: int, frame: memoryview, refusal: Exception | None
    ) -> None:
        key = api.key
        client_id, position = read_client_id(frame)
        ctx = RequestContext(
            self.state,
            key,
            version,
            correlation_id=correlation_id,
            client_id=client_id,
            client_host=self.client_host,
            local_host=self.local_host,
        )
        if refusal is not None:
            self._send_response(ctx, answer_error(api, ctx, None, refusal))
            return
        if is_flexible(key, version):
            position = skip_tagged_fields(frame, position)
        request = read_request(key, version, frame, position)
        assert api.handler is not None
        try:
            response = api.handler(ctx, request)
            if inspect.iscoroutine(response):
                coroutine = response
                try:
                    awaited = coroutine.send(None)
                except StopIteration as stop:
                    response = stop.value
                else:
                    self._held |= _REQUEST_IN_WORK
                    task = self._host.loop.create_task(self._finish(api, ctx, request, coroutine, awaited))
                    if api.waits:
                        self.pending = task
                    else:
                        self._unfinished = task
                    return
        except Exception as error:
            self._send_failure(api, ctx, request, error)
            return
        if response is not None:
            self._send_response(ctx, response)

    async def _finish(
        self, api: Api, ctx: RequestContext, request: Any, coroutine: Coroutine[Any, Any, Any], awaited: Any
    ) -> None:
        """The rest of a handler that had to wait."""
        try:
            response = await _resumed(coroutine, awaited)
        except asyncio.CancelledError:
            if self.closed:
                raise
            self.reject(f"{api.key.message} was cancelled")
            return
        except Exception as error:
            if not self.closed:
                self._send_failure(api, ctx, request, error)
        else:
            if response is not None and not self.closed:
                self._send_response(ctx, response)
        self.respond(())

    def _send_failure(self, api: Api, ctx: RequestContext, request: Any, error: Exception) -> None:
        response = answer_error(api, ctx, request, error)
        if response is None:
            self.reject(f"{api.key.message} v{ctx.version} failed: {error}")
        else:
            self._send_response(ctx, response)

    def _send_response(self, ctx: RequestContext, response: Any) -> None:
        try:
            self._out.append(write_response(ctx.key, ctx.correlation_id, response))
        except Exception:
            self._fail(f"writing the response to {ctx.key.message} v{ctx.version}")

    def respond(self, chunks: Sequence[Chunk]) -> None:
        """The answer to the request in work: send it and go on with what has come in the meantime."""
        if self.closed:
            return
        self.pending = self._unfinished = None
        self._out.extend(chunks)
        if self._out:
            self._flush()
        if not self.closed:
            self._release(_REQUEST_IN_WORK)

    # --- sending ------------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Send what the socket takes, up to a turn's worth; the rest goes when it is writable again."""
        out = self._out
        left = _TURN_BYTES
        try:
            while out and left > 0:
                first = out[0]
                left -= self._send_file(first, left) if isinstance(first, FileSlice) else self._send_bytes(out)
        except (BlockingIOError, InterruptedError):
            self._go_on_when_writable()
        except StratalogError as error:
            logger.error("Closing the connection from %s: %s", self.client_host, error)
            self.close()
        except OSError:  # gone
            self.close()
        except Exception:
            logger.exception("Closing the connection from %s: sending failed", self.client_host)
            self.close()
        else:
            if out:
                self._go_on_when_writable()

    def _go_on_when_writable(self) -> None:
        if not self._held & _OUTPUT_STUCK:
            self._held |= _OUTPUT_STUCK
            self._host.loop.add_writer(self._fd, self._on_writable)

    def _send_bytes(self, out: list[Chunk]) -> int:
        """Send the pieces in front of the first file range, or as many of them as fit one call; how many bytes went."""
        pieces: list[bytes | bytearray | memoryview] = []
        size = 0
        for piece in out:
            if isinstance(piece, FileSlice):
                break
            pieces.append(piece)
            size += len(piece)
            if size > _JOIN_BYTES_MAX:
                break
        count = len(pieces)
        data = pieces[0] if count == 1 else b"".join(pieces)
        sent = self._sock.send(data, _MSG_MORE if len(out) > count else 0)
        if sent == size:
            del out[:count]
        else:
            out[:count] = [memoryview(data)[sent:]]
        return sent

    def _send_file(self, piece: FileSlice, limit: int) -> int:
        """Send of the file range in front, and take it away once all went; how many bytes did.

        Ends behind `limit`, or with BlockingIOError when the socket is full before.
        """
        file, begun = piece.file, self._file_sent
        end = min(piece.size, begun + limit)
        while self._file_sent < end:
            position = piece.position + self._file_sent
            if _SENDFILE is not None:
                try:
                    sent = _SENDFILE(self._fd, file.fileno(), position, end - self._file_sent)
                except OSError as error:
                    if error.errno not in _NO_SENDFILE_ERRNOS:
                        raise
                    sent = self._copy_file(piece, position)
            else:
                sent = self._copy_file(piece, position)
            if sent == 0:
                raise StratalogError(f"{file.path} ended at {position} while it was sent, expected {piece.size} bytes")
            self._file_sent += sent
        if end == piece.size:
            del self._out[0]
            self._file_sent = 0
        return end - begun

    def _copy_file(self, piece: FileSlice, position: int) -> int:
        data = piece.file.pread(min(_COPY_BYTES, piece.position + piece.size - position), position)
        return self._sock.send(data) if data else 0

    def _on_writable(self) -> None:
        self.active_at = self._host.loop.time()
        self._flush()
        if not self._out and not self.closed:
            self._host.loop.remove_writer(self._fd)
            self._release(_OUTPUT_STUCK)


@types.coroutine
def _resumed(coroutine: Coroutine[Any, Any, Any], awaited: Any) -> Generator[Any, Any, Any]:
    """Go on with a coroutine that was run by hand up to the point where it waits for `awaited`."""
    while True:
        try:
            sent = yield awaited
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:
            step, argument = coroutine.throw, error
        else:
            step, argument = coroutine.send, sent  # type: ignore[assignment]
        try:
            awaited = step(argument)
        except StopIteration as stop:
            return stop.value


def _bad_size(size: int, size_max: int) -> str:
    if size > size_max:
        hint = _foreign_protocol(size)
        return f"a request of {size} bytes, but socket.request.max.bytes allows {size_max}{hint}"
    return f"{size} bytes cannot be a request"


def _foreign_protocol(size: int) -> str:
    """A guess at what was sent when the first four bytes are no size."""
    head = size.to_bytes(4, "big")
    if head[:2] == b"\x16\x03":
        return " (that is TLS; this listener speaks plain text)"
    if head in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI"):
        return " (that is HTTP)"
    return ""
