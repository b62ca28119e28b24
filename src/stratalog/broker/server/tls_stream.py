"""The TLS of one connection: OpenSSL between the socket and the requests, fed a few records at a time.

OpenSSL handles messages of TLS itself (such as KeyUpdate) in one call, for as long as more of them arrive. With the
socket in its hands, a client that sends nothing else would hold the broker's thread. So bytes pass through memory.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Final, cast

from typing_extensions import Buffer

#: What OpenSSL gets at once: a whole record, or some 600 of the smallest messages, which take a few milliseconds.
_FED_BYTES: Final = 17 * 1024
#: What is encrypted at once.
_SENT_BYTES: Final = 64 * 1024

_NOTHING: Final = memoryview(b"")


class TlsStream:
    """The server's side of TLS over a non-blocking socket. Belongs to the loop's thread.

    Calls raise BlockingIOError when the socket has no more bytes, or (`is_full`) accepts no more.
    """

    __slots__ = ("_incoming", "_outgoing", "_sock", "_tls", "_unsent")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        #: Encrypted bytes that the socket did not accept yet.
        self._unsent = _NOTHING

    @property
    def is_full(self) -> bool:
        """Whether encrypted bytes wait for the socket."""
        return bool(self._unsent)

    @property
    def has_received(self) -> bool:
        """Whether bytes that the socket does not report any more wait for `receive_into`."""
        return bool(self._incoming.pending or self._tls.pending())

    @property
    def kept_bytes(self) -> int:
        """The memory of bytes that wait."""
        unsent = self._unsent.obj
        return self._incoming.pending + (len(unsent) if isinstance(unsent, bytes) else 0)

    def client_certificate(self) -> bytes | None:
        """Return the verified certificate of the client (DER)."""
        return self._tls.getpeercert(binary_form=True)

    def shake_hands(self) -> None:
        """Continue the handshake; returns when it has ended. Raises SSLError or OSError if it failed."""
        self.drain()
        try:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                if not self._feed():
                    self._incoming.write_eof()
                self._tls.do_handshake()
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        finally:
            with contextlib.suppress(OSError):  # that the client has gone is found by what is received
                self._push()

    def receive_into(self, space: memoryview) -> int:
        """Return the number of bytes that were received, 0 at the end. Raises SSLError or OSError."""
        self.drain()
        try:
            if not self.has_received and not self._feed():
                return 0
            try:
                return self._read(space)
            except ssl.SSLWantReadError:  # half a record
                return self._read(space) if self._feed() else 0
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        finally:
            with contextlib.suppress(OSError):  # that the client has gone is found by what is received
                self._push()

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Encrypt some of the data and send it; return how much. Some of it may wait here: see `is_full`."""
        self.drain()
        piece: Buffer = data if len(data) <= _SENT_BYTES else memoryview(data)[:_SENT_BYTES]
        count = self._tls.write(piece)
        self._push()
        return count

    def drain(self) -> None:
        """Send the encrypted bytes that wait; BlockingIOError if the socket does not accept them all."""
        while self._unsent:
            self._unsent = self._unsent[self._sock.send(self._unsent) :]
        self._unsent = _NOTHING

    def end(self) -> None:
        """Tell the client that nothing follows. The client's own end is not awaited."""
        with contextlib.suppress(ssl.SSLWantReadError):  # it would be awaited
            self._tls.unwrap()
        self._push()

    def _read(self, space: memoryview) -> int:
        return cast("int", self._tls.read(len(space), space))  # with a buffer it returns the count

    def _feed(self) -> bool:
        """Give OpenSSL some bytes of the socket; return whether there were any, which at the end there are not."""
        received = self._sock.recv(_FED_BYTES)
        self._incoming.write(received)
        return bool(received)

    def _push(self) -> None:
        """Send what OpenSSL has written; the rest waits. OSError if the client has gone: then nothing waits."""
        if not self._outgoing.pending:
            return
        self._unsent = memoryview(bytes(self._unsent) + self._outgoing.read())
        try:
            self.drain()
        except BlockingIOError:
            return
        except OSError:
            self._unsent = _NOTHING
            raise
