"""Read the plugin's keys and values one by one, and refuse unused ones at the end."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from stratalog.errors import UsageError

logger = logging.getLogger(__name__)


class PluginOptions:
    """Keys without the plugin prefix. Every method raises UsageError with the key and what is expected."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._taken: set[str] = set()

    def take(self, name: str) -> str | None:
        """Return a value without surrounding blanks, or None."""
        self._taken.add(name)
        value = self._options.get(name)
        return None if value is None else value.strip()

    def required(self, name: str) -> str:
        """Return a value that has no default."""
        value = self.take(name)
        if not value:
            raise UsageError(f"{name} is missing")
        return value

    def boolean(self, name: str, default: bool | None = False) -> bool | None:
        value = self.take(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise UsageError(f"{name}={value}: expected true or false")
        return value.lower() == "true"

    def number(self, name: str, *, least: int, largest: int | None = None) -> int:
        """Return a number that has no default."""
        value = self.required(name)
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if number < least or (largest is not None and number > largest):
            upper = "or more" if largest is None else f"to {largest}"
            raise UsageError(f"{name}={value}: expected {least} {upper}")
        return number

    def names(self, name: str) -> list[str]:
        """Return the parts of a comma-separated value."""
        return [part.strip() for part in (self.take(name) or "").split(",") if part.strip()]

    def without_effect(self, names: Iterable[str], prefixes: tuple[str, ...] = ()) -> None:
        """Accept keys without effect here; those that are set are logged."""
        wanted = set(names)
        found = sorted(each for each in self._options if each in wanted or each.startswith(prefixes))
        self._taken.update(found)
        if found:
            logger.info("These keys of Aiven's plugin have no effect in this broker: %s", ", ".join(found))

    def refuse_the_rest(self) -> None:
        """Raise UsageError for an unused key."""
        rest = sorted(set(self._options) - self._taken)
        if rest:
            more = f" (and {len(rest) - 1} more)" if len(rest) > 1 else ""
            raise UsageError(f"{rest[0]}{more} is not an option of Aiven's plugin in this broker: remove it")
