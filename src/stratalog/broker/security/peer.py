"""Who is at the other end of a connection, and how it came in: what authorization, quotas and answers go by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is meant by an access rule: `User:alice`. Names are compared as they are, case and all."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


#: A client that came in by a listener that asks for no proof.
ANONYMOUS: Final = Principal("User", "ANONYMOUS")


@dataclass(frozen=True, slots=True)
class Listener:
    """Where the broker is reached. An empty host stands for the address that a client came in by.

    `name` is in capitals, `protocol` one of Kafka's four.
    """

    host: str
    port: int
    name: str = "PLAINTEXT"
    protocol: str = "PLAINTEXT"


#: Of a client that has not told it, as Kafka has it.
_UNKNOWN_SOFTWARE = ("unknown", "unknown")


class Peer:
    """The other end of one connection. Belongs to the loop's thread; `principal` changes when it proves who it is."""

    __slots__ = (
        "by_token", "client_host", "client_port", "is_gone", "listener", "local_host", "principal", "software",
    )  # fmt: skip

    def __init__(
        self,
        listener: Listener,
        client_host: str = "127.0.0.1",
        local_host: str = "127.0.0.1",
        principal: Principal = ANONYMOUS,
        client_port: int | None = None,
    ) -> None:
        #: The listener that the client came in by.
        self.listener = listener
        #: The client's address, and the address of ours that it reached.
        self.client_host = client_host
        self.local_host = local_host
        self.principal = principal
        #: Whether the principal is the owner of a delegation token, by which the client came in.
        self.by_token = False
        self.client_port = client_port
        #: Name and version of the client's software.
        self.software = _UNKNOWN_SOFTWARE
        #: Whether the connection has ended.
        self.is_gone = False

    @property
    def reached_host(self) -> str:
        """The host of this broker for this client: what its listener advertises, or else the address it came in by."""
        return self.listener.host or self.local_host
