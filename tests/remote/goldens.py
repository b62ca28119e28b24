"""What Apache Kafka 4.4.0 answered; `python -m tests.golden.remote.make` writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GOLDENS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "golden" / "remote" / "goldens.json").read_text(encoding="utf-8")
)
