"""What to say and which exit code to give when something that was asked for by name does not exist."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Collection

EXIT_MISSING = 1


def report_missing(asked: Collection[str] | None, found: Collection[str], where: str) -> int:
    """Say on stderr which of the topics `asked` for are not among `found`, with the nearest name of what there is.

    Returns the exit code: 1 when one is missing, else 0.
    """
    missing = sorted(set(asked or ()) - set(found))
    for name in missing:
        near = difflib.get_close_matches(name, found, n=1)
        hint = f"; did you mean {near[0]}?" if near else "" if found else "; it holds no topics"
        print(f"stratalog: {where}: no topic {name}{hint}", file=sys.stderr)
    return EXIT_MISSING if missing else 0
