"""A TLS connection: the same requests and answers, through OpenSSL instead of the bare socket.

File ranges go through memory, a piece at a time: Python cannot let the kernel encrypt what it sends.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Final, cast

from stratalog.broker.security import Peer, ServerTls
from stratalog.broker.server.connection import Connection, Host, memory_of, rest_of
from stratalog.broker.server.dispatch import Chunk
from stratalog.broker.server.sasl_calls import SaslServer
from stratalog.errors import StratalogError
from stratalog.log.format import FileSlice

#: Small answers are joined up to one record of TLS.
_RECORD_BYTES: Final = 16 * 1024
#: Piece of a file that is read at once.
_COPY_BYTES: Final = 256 * 1024
#: Records to receive before other connections get their turn.
_RECORDS_A_TURN: Final = 32

_NOTHING: Final = memoryview(b"")
_WAITS: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsConnection(Connection):
    """A connection over TLS. Belongs to the loop's thread. Reads no request until its handshake has ended."""

    __slots__ = ("_asks", "_chunk", "_shaking", "_tls")

    def __init__(self, host: Host, sock: socket.socket, peer: Peer, tls: ServerTls, sasl: SaslServer | None) -> None:
        sock.getpeername()  # OSError when it is closed: `wrap_socket` would leak the socket
        wrapped = tls.context().wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        super().__init__(host, wrapped, peer, sasl)
        self.outside_since = self.active_at
        self._asks = sasl is not None
        self._tls = tls
        self._shaking = True
        #: What was read of a file and not sent yet.
        self._chunk = _NOTHING

    @property
    def _secured(self) -> ssl.SSLSocket:
        return cast("ssl.SSLSocket", self._sock)

    def close(self) -> None:
        if not (self.closed or self._shaking or self.is_stuck):
            with contextlib.suppress(OSError, ValueError):
                self._secured.unwrap()  # sends close_notify; the client's is not awaited
        super().close()
        self._chunk = _NOTHING

    def _shake_hands(self) -> None:
        try:
            self._secured.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLWantWriteError:
            self._go_on_when_writable()
            return
        except ssl.SSLError as error:
            self._refuse(_reason(error))
            return
        except (OSError, ValueError):  # gone in the middle of it
            self.close()
            return
        try:
            self.peer.principal = self._tls.principal_of(self._secured.getpeercert(binary_form=True))
        except Exception as error:  # noqa: BLE001  # any error of a library for an odd certificate
            known = isinstance(error, StratalogError | ValueError)
            self._refuse(str(error) if known else f"a certificate that cannot be read: {type(error).__name__}")
            return
        self._shaking = False
        self.active_at = self._loop.time()
        if not self._asks:
            self.outside_since = None

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
        try:
            for _ in range(_RECORDS_A_TURN):
                if framing.is_starved:
                    self._wait_for_memory()
                    return
                try:
                    count = self._secured.recv_into(framing.space())
                except _WAITS:
                    return
                if not count:
                    self.close()
                    return
                framing.received(count)
                self.calls.answer(framing.frames())
                framing.settle()
                if self.closed or self._is_held():
                    return
        finally:
            framing.settle()
        if self._secured.pending():  # these bytes are in OpenSSL's memory: the socket does not report them
            self._loop.call_soon(self._on_readable)

    def _peek(self) -> bytes:
        return socket.socket.recv(self._sock, 1, socket.MSG_PEEK)  # of the bytes below TLS

    def _has_requests(self) -> bool:
        return super()._has_requests() or (not self._shaking and bool(self._secured.pending()))

    def proceed(self) -> None:
        super().proceed()
        if not (self.closed or self._is_held()) and self._secured.pending():
            self._loop.call_soon(self._on_readable)

    def _write(self, data: bytes | bytearray | memoryview) -> int:
        try:
            return self._secured.send(data)
        except _WAITS:
            raise BlockingIOError from None

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
        sent = self._write(data)
        out[: len(pieces)] = [] if sent == size else [rest_of(data, sent)]
        return sent

    def _kept_bytes(self) -> int:
        return super()._kept_bytes() + memory_of(self._chunk)

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
            sent = self._write(self._chunk)
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
            self._shake_hands()
        else:
            super()._on_writable()


def _reason(error: ssl.SSLError) -> str:
    """Return why OpenSSL gave up, in its words."""
    found = getattr(error, "verify_message", None) or error.reason or "the client left"
    return str(found).lower().replace("_", " ")
