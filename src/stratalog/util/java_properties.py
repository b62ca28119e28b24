"""System properties of Java, as Kafka's scripts and the JVM take them from the environment."""

from __future__ import annotations

import os
from typing import Final

#: A later one takes precedence.
_VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "KAFKA_OPTS")


def java_property(name: str) -> str | None:
    """Return the value of `-D<name>=<value>` in KAFKA_OPTS or JAVA_TOOL_OPTIONS; None without one."""
    begin = f"-D{name}="
    words = [word for variable in _VARIABLES for word in os.environ.get(variable, "").split()]
    return next((word.removeprefix(begin) for word in reversed(words) if word.startswith(begin)), None)
