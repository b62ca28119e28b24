"""The error for something that was named and does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection

from stratalog.errors import StratalogError


class NothingFoundError(StratalogError):
    """Something that was named does not exist. Exit code 1, so that a typo never looks like success."""

    exit_code = 1


def require_topics(asked: Collection[str] | None, found: Callable[[], Collection[str]], where: str) -> None:
    """Raise NothingFoundError, with the nearest name, unless all topics `asked` for are among those `found`."""
    if not asked:
        return
    known = found()
    missing = sorted(set(asked) - set(known))
    if not missing:
        return
    near = difflib.get_close_matches(missing[0], known, n=1)
    hint = f"; did you mean {near[0]}?" if near else "" if known else "; it holds no topics"
    raise NothingFoundError(f"{where}: no topic {', '.join(missing)}{hint}")
