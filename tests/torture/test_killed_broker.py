"""Clients of all kinds at work while their broker is killed: no answer may turn out untrue.

`STRATALOG_TORTURE_LIVES` (default 20) is how many stories `-m soak` lives, from `STRATALOG_TORTURE_SEED` on.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.torture.served.story import live_served

STORIES = int(os.environ.get("STRATALOG_TORTURE_LIVES", "20"))
SEED = int(os.environ.get("STRATALOG_TORTURE_SEED", "0"))
KILLS = 3


@pytest.mark.soak
@pytest.mark.timeout(24 * 3600)
def test_what_clients_were_promised_holds_over_kills(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEED, SEED + STORIES):
        print(f"seed {seed}", flush=True)
        counts += live_served(tmp_path / str(seed), seed, KILLS)
    print(", ".join(f"{number} {what}" for what, number in sorted(counts.items())))
    assert counts["kills"] == KILLS * STORIES
