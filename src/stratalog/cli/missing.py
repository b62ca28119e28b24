"""The error for a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection

from stratalog.errors import StratalogError


class NothingFoundError(StratalogError):
    """A name does not exist. Exit code 1, so that a typo never looks like success."""

    exit_code = 1


def require_topics(asked: Collection[str] | None, found: Callable[[], Collection[str]], where: str) -> None:
    """Raise NothingFoundError, which names the nearest, unless all topics `asked` for are `found` in `where`."""
    require_named("topic", asked, found, where)


def require_named(kind: str, asked: Collection[str] | None, found: Callable[[], Collection[str]], where: str) -> None:
    """Raise NothingFoundError unless everything of a `kind` that is `asked` for is among what is `found`."""
    if not asked:
        return
    known = found()
    missing = sorted(set(asked) - set(known))
    if not missing:
        return
    near = difflib.get_close_matches(missing[0], known, n=1)
    hint = f"; did you mean {near[0]}?" if near else "" if known else f"; it holds no {kind}s"
    raise NothingFoundError(f"{where}: no {kind} {', '.join(missing)}{hint}")
