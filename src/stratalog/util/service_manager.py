"""Words to the service manager that started this process: systemd, by the socket that it names (sd_notify(3))."""

from __future__ import annotations

import logging
import os
import socket

logger = logging.getLogger(__name__)


def tell_service_manager(state: str) -> None:
    """Send a state like READY=1 or STOPPING=1 to the socket that NOTIFY_SOCKET names; without one, do nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        try:
            channel.connect("\0" + address[1:] if address.startswith("@") else address)
            channel.sendall(state.encode())
        except OSError as error:
            logger.warning("%s could not be sent to the service manager at %s: %s", state, address, error)
