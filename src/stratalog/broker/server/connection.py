"""One client's socket: receives into its `Framing`, sends what its `Calls` answer.

The broker watches a non-blocking socket itself instead of using the loop's transports. That saves a copy of all data
received, and lets the kernel send segments (sendfile), for which uvloop has no call.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import select
import socket
from collections.abc import Callable
from functools import partial
from itertools import chain
from time import thread_time
from typing import Final, Protocol

from stratalog.broker.security import Peer
from stratalog.broker.server import calls, framing
from stratalog.broker.server.calls import Calls
from stratalog.broker.server.dispatch import Chunk
from stratalog.broker.server.framing import Framing
from stratalog.broker.server.request_memory import RequestMemory
from stratalog.broker.server.sasl_calls import SaslCalls, SaslServer
from stratalog.errors import StratalogError
from stratalog.log.format import FileSlice

logger = logging.getLogger(__name__)

#: Smaller pieces are joined for one system call.
_JOIN_BYTES_MAX: Final = 32 * 1024
#: Piece of a file that goes through memory where there is no sendfile.
_COPY_BYTES: Final = 256 * 1024
#: After this much, other connections get their turn, however fast this client reads (as in Kafka: one write a turn).
_TURN_BYTES: Final = 512 * 1024
#: A connection that takes more CPU than this, or has more requests than fit a turn, queues for its next turn. More than
#: a small request takes, less than a client notices. Wall time would queue quick clients behind slow ones on a busy
#: machine.
_QUICK_S: Final = 0.001
#: Number of consecutive slow turns after which a connection queues: one large batch now and then does no harm. The rest
#: of a large request queues at once: receiving a megabyte takes most of that time, and many clients may do it in a
#: turn.
_SLOW_TURNS: Final = 2

#: Poll event of a connection that the peer has closed.
_ENDED = getattr(select, "POLLRDHUP", 0)
_MSG_MORE = getattr(socket, "MSG_MORE", 0)
_SENDFILE: Callable[[int, int, int, int], int] | None = getattr(os, "sendfile", None)
_NO_SENDFILE_ERRNOS = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}


class Host(calls.CallHost, framing.Buffers, Protocol):
    """The server, as a connection needs it."""

    request_bytes_max: int
    memory: RequestMemory

    def forget(self, connection: Connection) -> None: ...
    def stay_awake(self) -> None: ...
    def give_turn(self, take_turn: Callable[[], object]) -> None:
        """Call this after other connections had their turn."""
        ...


class Connection:
    """One client's connection. Belongs to the loop's thread."""

    __slots__ = (
        "_fd", "_file_sent", "_host", "_is_in_line", "_loop", "_out", "_reading", "_slow_turns", "_sock", "active_at",
        "calls", "closed", "framing", "is_starved", "is_stuck", "outside_since", "peer",
    )  # fmt: skip

    def __init__(self, host: Host, sock: socket.socket, peer: Peer, sasl: SaslServer | None = None) -> None:
        self._host = host
        self._loop: asyncio.AbstractEventLoop = host.loop
        self._sock = sock
        self._fd = sock.fileno()
        self.peer = peer
        #: Loop time when the client last sent something, or read something of its answers.
        self.active_at = self._loop.time()
        self.closed = False
        #: Whether answers wait for the client to read.
        self.is_stuck = False
        #: Whether it is queued for its next turn.
        self._is_in_line = False
        #: Consecutive slow turns. A new connection starts at the limit.
        self._slow_turns = _SLOW_TURNS
        #: Whether there is no memory for the rest of a request.
        self.is_starved = False
        self.framing = Framing(host, host.request_bytes_max)
        #: Loop time since when the client has had to authenticate; None once it may send requests.
        self.outside_since: float | None = None
        self.calls = Calls(host, self) if sasl is None else SaslCalls(host, self, sasl)
        if sasl is not None:
            self.outside_since = self.active_at
            self.framing.expect_messages(sasl.settings.receive_bytes_max)
        self._out: list[Chunk] = self.calls.out
        self._file_sent = 0
        self._reading = True
        self._loop.add_reader(self._fd, self._on_readable)

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether it waits for the client alone: for its next request, or for it to read its answers."""
        return self.is_stuck or self.calls.is_muted or not self.calls.is_waiting

    def _is_held(self) -> bool:
        """Return whether nothing is read or answered for now."""
        return self.is_stuck or self.is_starved or self._is_in_line or self.calls.is_waiting

    def let_in(self) -> None:
        self.outside_since = None
        self.framing.expect_requests(self._host.request_bytes_max)

    def is_abandoned(self) -> bool:
        """Return whether the client has gone without an event of the socket.

        While received bytes have to wait, the socket is not read. And the loop reports a reset that directly follows
        bytes only once, with those bytes.
        """
        if self.calls.is_reading:
            return False  # the request is carried out all the same
        poll = select.poll()
        poll.register(self._fd, 0 if self._reading else _ENDED)  # errors are always reported
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close at once and cancel pending requests. Idempotent."""
        if self.closed:
            return
        self.closed = self.peer.is_gone = True
        self._loop.remove_reader(self._fd)
        if self.is_stuck:
            self._loop.remove_writer(self._fd)
            self._host.memory.hold_answers(self, 0)
        if self.is_starved:
            self._host.memory.forget_wait(self.framing)
        self._sock.close()
        self.framing.clear()
        self.calls.close()
        self._host.forget(self)

    # --- receiving ----------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        if self._is_held():
            self._look()
            return
        if self._slow_turns >= _SLOW_TURNS or self.framing.is_large_begun:
            self._is_in_line = True
            self._host.give_turn(self._take_in_and_proceed)
        else:
            self._take_in()

    def _take_in_and_proceed(self) -> None:
        self._is_in_line = False
        if not (self.closed or self._is_held()):
            self._take_in()
        if not self.closed:
            self.proceed()

    def _take_in(self) -> None:
        """Receive the available bytes and process them."""
        self.active_at = self._loop.time()
        begun_s = thread_time()
        try:
            self._receive()
            if self.framing.is_large_begun and not self._is_held() and not self.closed:
                self._receive()  # more of it is likely to be there
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # reset by the client
            self.close()
        except Exception:  # noqa: BLE001
            self.calls.fail("a request")
        else:
            # A new client is as likely to leave as to send again. A flood of new connections must not keep the thread
            # from sleeping: that would cost it its scheduling priority where cores are scarce.
            if self._slow_turns < _SLOW_TURNS:
                self._host.stay_awake()
        finally:
            is_slow = self._is_in_line or thread_time() - begun_s > _QUICK_S
            self._slow_turns = self._slow_turns + 1 if is_slow else 0

    def _receive(self) -> None:
        """Receive once, and process complete requests."""
        framing = self.framing
        if framing.is_starved:
            self._wait_for_memory()
            return
        try:
            count = self._sock.recv_into(framing.space())
            if count:
                framing.received(count)
                self.calls.answer(framing.frames())
            else:
                self.close()
        finally:
            framing.settle()

    def _wait_for_memory(self) -> None:
        self.is_starved = True
        self._host.memory.wait(self.framing, partial(self._loop.call_soon, self._on_memory))

    def _on_memory(self) -> None:
        if not self.closed:
            self.is_starved = False
            self.proceed()

    def _look(self) -> None:
        """Handle readability while a request has to wait: the client has gone, or has sent more.

        What a client sent before it went is carried out, as by Kafka: a consumer leaves its group like that.
        """
        try:
            is_there = bool(self._peek()) or self._has_requests()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            is_there = self.calls.is_reading
        if is_there:
            self._loop.remove_reader(self._fd)
            self._reading = False
        else:
            self.close()

    def _has_requests(self) -> bool:
        """Return whether there are requests that were received and not begun."""
        if self.is_starved:
            return False
        return self.calls.is_reading or self.calls.has_left or self.framing.has_leftover

    def _peek(self) -> bytes:
        return self._sock.recv(1, socket.MSG_PEEK)

    def wait_for_turn(self) -> None:
        if self.framing.has_leftover or self.calls.has_left:
            self._is_in_line = True
            self._host.give_turn(self._take_turn)

    def _take_turn(self) -> None:
        """Continue with the requests that were received already."""
        self._is_in_line = False
        if not self.closed:
            self.proceed()

    def proceed(self) -> None:
        """Continue after a wait: with requests that were received already, then with the socket."""
        try:
            if not self._is_held() and (self.calls.has_left or self.framing.has_leftover):
                self.calls.answer(chain(self.calls.left(), self.framing.frames()))
                self.framing.settle()
        except Exception:  # noqa: BLE001
            self.calls.fail("a request")
        if not (self._reading or self.closed or self._is_held()):
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    # --- sending ------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send up to a turn's worth. The rest is sent when the socket is writable again."""
        out = self._out
        left = _TURN_BYTES
        try:
            while out and left > 0:
                first = out[0]
                left -= self._send_file(first, left) if isinstance(first, FileSlice) else self._send_bytes(out)
        except (BlockingIOError, InterruptedError):
            self._go_on_when_writable()
        except StratalogError as error:
            logger.error("Closing the connection from %s: %s", self.peer.client_host, error)
            self.close()
        except OSError:  # gone
            self.close()
        except Exception:
            logger.exception("Closing the connection from %s: sending failed", self.peer.client_host)
            self.close()
        else:
            if out:
                self._go_on_when_writable()
            else:
                self.calls.note_sent()

    def _go_on_when_writable(self) -> None:
        if not self.is_stuck:
            self.is_stuck = True
            self._loop.add_writer(self._fd, self._on_writable)
        self._host.memory.hold_answers(self, self._kept_bytes())

    def _has_unsent(self) -> bool:
        """Return whether answers wait for the client to read."""
        return bool(self._out)

    def _kept_bytes(self) -> int:
        """Return the memory of answers that wait, and of the requests behind them."""
        answers = sum(memory_of(piece) for piece in self._out if not isinstance(piece, FileSlice))
        return answers + self.framing.kept_bytes + self.calls.left_bytes

    def _send_bytes(self, out: list[Chunk]) -> int:
        """Send the pieces before the first file range, or as many as fit one call; return the bytes sent."""
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
            out[:count] = [rest_of(data, sent)]
        return sent

    def _send_file(self, piece: FileSlice, limit: int) -> int:
        """Send up to `limit` bytes of the first file range, and remove it once it is complete; return the bytes sent.

        Raises BlockingIOError when the socket is full before that.
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
        self.active_at = self._loop.time()
        self.flush()
        if not self._has_unsent() and not self.closed:
            self._loop.remove_writer(self._fd)
            self.is_stuck = False
            self._host.memory.hold_answers(self, 0)
            self.proceed()


def rest_of(data: bytes | bytearray | memoryview, sent: int) -> bytes | memoryview:
    """Return the unsent rest of a piece.

    A view keeps the whole piece in memory. So a rest of at most half the piece is copied: the copies of a piece never
    add up to more than the piece itself.
    """
    rest = memoryview(data)[sent:]
    return bytes(rest) if 2 * len(rest) <= memory_of(data) else rest


def memory_of(piece: bytes | bytearray | memoryview) -> int:
    """Return the memory that a piece holds; for a view, that of the object behind it."""
    return memoryview(piece.obj).nbytes if isinstance(piece, memoryview) else len(piece)
