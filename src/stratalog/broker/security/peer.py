"""The client of a connection and its listener, for authorization, quotas and responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Principal:
    """The subject of an access rule: `User:alice`. Names are case-sensitive."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


#: A client of a listener without authentication.
ANONYMOUS: Final = Principal("User", "ANONYMOUS")


@dataclass(frozen=True, slots=True)
class Listener:
    """An address of the broker. With an empty host, each client gets the address through which it connected.

    `name` is in capitals, `protocol` one of Kafka's four.
    """

    host: str
    port: int
    name: str = "PLAINTEXT"
    protocol: str = "PLAINTEXT"


#: Default of a client that has not sent its name and version, as in Kafka.
_UNKNOWN_SOFTWARE = ("unknown", "unknown")


class Peer:
    """The other end of one connection. Belongs to the loop's thread; authentication changes `principal`."""

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
        self.listener = listener
        #: The client's address, and the broker's address that it connected to.
        self.client_host = client_host
        self.local_host = local_host
        self.principal = principal
        #: Whether the client authenticated by a delegation token, whose owner is the principal.
        self.by_token = False
        self.client_port = client_port
        #: Name and version of the client's software.
        self.software = _UNKNOWN_SOFTWARE
        #: Whether the connection has ended.
        self.is_gone = False

    @property
    def reached_host(self) -> str:
        """The host of this broker for this client: the advertised one, or else the address that it connected to."""
        return self.listener.host or self.local_host
