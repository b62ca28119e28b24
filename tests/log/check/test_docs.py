"""`docs/reference/fsck.md` lists what a check can find."""

from __future__ import annotations

import re
from pathlib import Path

from stratalog.jobs.fsck.findings import FsckKind

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "fsck.md"


def test_every_kind_of_finding_has_a_row_and_every_row_a_kind() -> None:
    rows = re.findall(r"(?m)^\| `([a-z-]+)` \| (?:error|warning|note)", PAGE.read_text(encoding="utf-8"))
    assert sorted(rows) == sorted(kind.value for kind in FsckKind)
