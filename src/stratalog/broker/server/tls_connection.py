"""A TLS connection: the same requests and answers, through OpenSSL instead of the bare socket.

File ranges go through memory, a piece at a time: Python cannot let the kernel encrypt what it sends.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from time import thread_time
from typing import Final

from stratalog.broker.security import Peer, ServerTls
from stratalog.broker.server.connection import Connection, Host, memory_of, rest_of
from stratalog.broker.server.dispatch import Chunk
from stratalog.broker.server.sasl_calls import SaslServer
from stratalog.broker.server.tls_stream import TlsStream
from stratalog.errors import StratalogError
from stratalog.log.format import FileSlice

#: Small answers are joined up to one record of TLS.
_RECORD_BYTES: Final = 16 * 1024
#: Piece of a file that is read at once.
_COPY_BYTES: Final = 256 * 1024
#: Records to receive before other connections get their turn.
_RECORDS_A_TURN: Final = 32
#: CPU time for the same: messages of TLS between the records take time too.
_RECEIVING_S: Final = 0.005

_NOTHING: Final = memoryview(b"")


class TlsConnection(Connection):
    """A connection over TLS. Belongs to the loop's thread. Reads no request until its handshake has ended."""

    __slots__ = ("_asks", "_chunk", "_shaking", "_stream", "_tls")

    def __init__(self, host: Host, sock: socket.socket, peer: Peer, tls: ServerTls, sasl: SaslServer | None) -> None:
        self._stream = TlsStream(sock, tls.context())
        super().__init__(host, sock, peer, sasl)
        self.outside_since = self.active_at
        self._asks = sasl is not None
        self._tls = tls
        self._shaking = True
        #: What was read of a file and not sent yet.
        self._chunk = _NOTHING

    def close(self) -> None:
        if not (self.closed or self._shaking or self.is_stuck):
            with contextlib.suppress(OSError, ValueError):
                self._stream.end()
        super().close()
        self._chunk = _NOTHING

    def _shake_hands(self) -> None:
        try:
            self._stream.shake_hands()
        except BlockingIOError:
            if self._stream.is_full:
                self._go_on_when_writable()
            return
        except ssl.SSLError as error:
            self._refuse(_reason(error))
            return
        except (OSError, ValueError):  # gone in the middle of it
            self.close()
            return
        try:
            self.peer.principal = self._tls.principal_of(self._stream.client_certificate())
        except Exception as error:  # noqa: BLE001  # any error of a library for an odd certificate
            known = isinstance(error, StratalogError | ValueError)
            self._refuse(str(error) if known else f"a certificate that cannot be read: {type(error).__name__}")
            return
        self._shaking = False
        self.active_at = self._loop.time()
        if not self._asks:
            self.outside_since = None
        self._go_on()

    def _refuse(self, why: str) -> None:
        self._host.closings.warn(self.peer.client_host, f"TLS handshake failed: {why}")
        self.close()

    def _on_readable(self) -> None:
        if self.closed:
            return
        if self._shaking and self.is_stuck:
            self._shake_hands()
        else:
            super()._on_readable()

    def _take_in(self) -> None:
        if self._shaking:
            self._shake_hands()
        else:
            super()._take_in()

    def _receive(self) -> None:
        """Receive up to a turn's worth of records, and process complete requests."""
        framing = self.framing
        begun_s = thread_time()
        try:
            for _ in range(_RECORDS_A_TURN):
                if framing.is_starved:
                    self._wait_for_memory()
                    return
                try:
                    count = self._stream.receive_into(framing.space())
                except BlockingIOError:
                    if self._stream.is_full:
                        self._go_on_when_writable()
                    return
                if not count:
                    self.close()
                    return
                framing.received(count)
                self.calls.answer(framing.frames())
                framing.settle()
                if self.closed or self._is_held():
                    return
                if thread_time() - begun_s > _RECEIVING_S:
                    break
        finally:
            framing.settle()
        self._go_on()

    def _go_on(self) -> None:
        """Continue with bytes that the socket does not report any more."""
        if self._stream.is_full:
            self._go_on_when_writable()
        if self._stream.has_received:
            self._loop.call_soon(self._on_readable)

    def _has_requests(self) -> bool:
        return super()._has_requests() or (not self._shaking and self._stream.has_received)

    def proceed(self) -> None:
        super().proceed()
        if not (self.closed or self._is_held()):
            self._go_on()

    def flush(self) -> None:
        try:
            self._stream.drain()
        except BlockingIOError:
            self._go_on_when_writable()
            return
        except OSError:  # gone
            self.close()
            return
        super().flush()
        if self._stream.is_full and not self.closed:
            self._go_on_when_writable()

    def _has_unsent(self) -> bool:
        return super()._has_unsent() or self._stream.is_full

    def _send_bytes(self, out: list[Chunk]) -> int:
        pieces: list[bytes | bytearray | memoryview] = []
        size = 0
        for piece in out:
            if isinstance(piece, FileSlice):
                break
            pieces.append(piece)
            size += len(piece)
            if size > _RECORD_BYTES:
                break
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        sent = self._stream.send(data)
        out[: len(pieces)] = [] if sent == size else [rest_of(data, sent)]
        return sent

    def _kept_bytes(self) -> int:
        return super()._kept_bytes() + memory_of(self._chunk) + self._stream.kept_bytes

    def _send_file(self, piece: FileSlice, limit: int) -> int:
        begun = self._file_sent
        end = min(piece.size, begun + limit)
        while self._file_sent < end:
            if not self._chunk:
                position = piece.position + self._file_sent
                data = piece.file.pread(min(_COPY_BYTES, piece.size - self._file_sent), position)
                if not data:
                    raise StratalogError(
                        f"{piece.file.path} ended at {position} while it was sent, expected {piece.size} bytes"
                    )
                self._chunk = memoryview(data)
            sent = self._stream.send(self._chunk)
            self._chunk = self._chunk[sent:] or _NOTHING
            self._file_sent += sent
        sent = self._file_sent - begun
        if self._file_sent == piece.size:
            del self._out[0]
            self._file_sent = 0
        return sent

    def _on_writable(self) -> None:
        if self._shaking:
            self._loop.remove_writer(self._fd)
            self.is_stuck = False
            self._host.memory.hold_answers(self, 0)
            self._shake_hands()
        else:
            super()._on_writable()


def _reason(error: ssl.SSLError) -> str:
    """Return why OpenSSL gave up, in its words."""
    found = getattr(error, "verify_message", None) or error.reason or "the client left"
    return str(found).lower().replace("_", " ")
