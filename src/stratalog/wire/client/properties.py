"""Properties of a Kafka client as they were given: `kafka.<property>`, with or without values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stratalog.errors import UsageError

_PREFIX: Final = "kafka."
#: What messages put before a property that came by an option.
OPTION: Final = f"option {_PREFIX}"


class Properties:
    """Properties without their prefix; names are not case-sensitive, as in Spark."""

    def __init__(self, options: Mapping[str, str], where: str) -> None:
        self.where = where
        self._values = {
            name.lower()[len(_PREFIX) :]: str(value)
            for name, value in options.items()
            if name.lower().startswith(_PREFIX)
        }

    def text(self, name: str) -> str | None:
        """Return the value without blanks around it, or None for an empty one."""
        return self._values.get(name, "").strip() or None

    def verbatim(self, name: str) -> str | None:
        return self._values.get(name)

    def words(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Return the words of a list without blanks around them; the default where it is not set, or empty."""
        value = self.text(name)
        return default if value is None else tuple(filter(None, (word.strip() for word in value.split(","))))

    def number(self, name: str, default: float) -> float:
        """Return a number, 0 or more, possibly with a fraction."""
        value = self.text(name)
        if value is not None and not value.replace(".", "", 1).isdecimal():
            raise UsageError(f"{self.where}{name}={value}: expected a number, 0 or more")
        return default if value is None else float(value)

    def seconds(self, name: str, default_ms: int) -> float:
        value = self.text(name)
        if value is not None and not value.isdecimal():
            raise UsageError(f"{self.where}{name}={value}: expected milliseconds")
        return int(value or default_ms) / 1000
