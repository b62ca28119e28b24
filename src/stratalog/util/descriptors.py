"""The limit of open files of a process. Connections and the `.log` files in use take most of them."""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger(__name__)


def descriptors_max() -> int | None:
    """Return how many file descriptors the process may have; None: as many as it likes."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> None:
    """Take as many file descriptors as the process may give itself.

    The soft limit is 1024 in most shells, for the sake of old programs that use select(); it is no advice.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        logger.warning("The limit of %d open files stays as it is: %s", soft, error)
