"""Requests to UpdateFeatures, one after the other on a broker at level 31, whose answers have to be Apache Kafka's.

`tests/golden/features/answers.json` holds what Kafka 4.4.0 answered; `python -m tests.golden.features.make` writes it.
Left out on purpose is what answers otherwise here: other features than `metadata.version` (Kafka has six more), levels
below 30 (Kafka's own metadata changed at 30), and the end of the refusal to go back below level 32.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from tests.support.wire import Wire

from stratalog.wire.api_keys import ApiKey

UNKNOWN, UPGRADE, SAFE, UNSAFE = 0, 1, 2, 3

#: What the refusal of a downgrade below level 32 ends with here, and not in Kafka.
OWN_REASON = (
    " Since level 32 (4.4-IV1) there may be segments past 2 GiB and offset indexes with 12-byte entries (KIP-1333),"
    " which lower levels cannot hold."
)


@dataclass(frozen=True)
class Case:
    """One request: (feature, level, upgrade type) each; in version 0 the type is whether downgrades are allowed."""

    name: str
    updates: tuple[tuple[str, int, int], ...]
    version: int = 2
    validate_only: bool = False

    def answer(self, wire: Wire, settle_s: float) -> list[Any]:
        """[error code, message, [feature, error code, message] each, finalized level of metadata.version then].

        A level that was finalized may take `settle_s` to show.
        """
        fields: dict[str, Any] = {"timeout": 10_000}
        if self.version:
            fields["validate_only"] = self.validate_only
        kind = "upgrade_type" if self.version else "allow_downgrade"
        updates = [
            {"feature": name, "max_version_level": level, kind: type_ if self.version else bool(type_)}
            for name, level, type_ in self.updates
        ]
        response = wire.call(ApiKey.UPDATE_FEATURES, self.version, feature_updates=updates, **fields)
        results = [[r.feature, int(r.error_code), r.error_message] for r in getattr(response, "results", ())]
        code = int(response.error_code)
        if self.updates and not code and not self.validate_only:
            deadline = time.monotonic() + settle_s
            while finalized(wire)[0] != self.updates[-1][1] and time.monotonic() < deadline:
                time.sleep(0.01)
        return [code, response.error_message, results, finalized(wire)[0]]


def finalized(wire: Wire) -> tuple[int, int]:
    """The finalized level of `metadata.version`, and the epoch that is reported with it."""
    response = wire.call(ApiKey.API_VERSIONS, 4, client_software_name="wire", client_software_version="1")
    (level,) = (f.max_version_level for f in response.finalized_features if f.name == "metadata.version")
    return int(level), int(response.finalized_features_epoch)


def _one(name: str, level: int, kind: int, *, version: int = 2, validate_only: bool = False) -> Case:
    return Case(name, (("metadata.version", level, kind),), version, validate_only)


CASES = [
    Case("nothing to do", ()),
    Case("nothing to do in v0", (), version=0),
    Case("a feature that nobody knows", (("no.such.feature", 1, UPGRADE),)),
    Case("a feature that nobody knows, to 0", (("no.such.feature", 0, SAFE),)),
    Case("an unknown feature in v1", (("no.such.feature", 1, UPGRADE),), version=1),
    Case("a feature without a name", (("", 1, UPGRADE),)),
    Case("good and bad together", (("metadata.version", 32, UPGRADE), ("no.such.feature", 1, UPGRADE))),
    _one("above the newest", 34, UPGRADE),
    _one("far above the newest", 2**15 - 1, UPGRADE),
    _one("below the oldest", 6, SAFE),
    _one("to 0", 0, SAFE),
    _one("to 0 as an upgrade", 0, UPGRADE),
    _one("negative", -1, SAFE),
    _one("negative as an upgrade", -5, UPGRADE),
    _one("to 0 in v0", 0, 1, version=0),
    _one("unknown type", 32, UNKNOWN),
    _one("a type that is not there yet", 32, 9),
    _one("unknown type to the level in force", 31, UNKNOWN),
    _one("upgrade to the level in force", 31, UPGRADE),
    _one("safe downgrade to the level in force", 31, SAFE),
    _one("unsafe downgrade to the level in force", 31, UNSAFE),
    _one("downgrade to a newer one", 32, SAFE),
    _one("unsafe downgrade to a newer one", 32, UNSAFE),
    _one("down as an upgrade", 30, UPGRADE),
    _one("down, only validated", 30, SAFE, validate_only=True),
    _one("down", 30, SAFE),
    _one("up again", 31, UPGRADE),
    _one("down unsafely", 30, UNSAFE),
    _one("up in v0", 31, 0, version=0),
    _one("down in v0, not allowed", 30, 0, version=0),
    _one("down in v0, allowed", 30, 1, version=0),
    _one("up in v0, downgrade allowed", 31, 1, version=0),
    _one("up in v1", 31, UPGRADE, version=1),
    _one("to 32, only validated", 32, UPGRADE, validate_only=True),
    _one("to 32", 32, UPGRADE),
    _one("to 32 again", 32, UPGRADE),
    _one("back to 31 as an upgrade", 31, UPGRADE),
    _one("back to 31", 31, SAFE),
    _one("back to 31, only validated", 31, SAFE, validate_only=True),
    _one("back to 31 unsafely", 31, UNSAFE),
    _one("back to 31 in v0", 31, 1, version=0),
    _one("back to 31 in v1", 31, SAFE, version=1),
    Case("twice, the last counts", (("metadata.version", 33, UPGRADE), ("metadata.version", 32, UPGRADE))),
    _one("to 33 in v1", 33, UPGRADE, version=1),
    _one("back to 32", 32, SAFE),
    _one("back to 32 unsafely", 32, UNSAFE),
    _one("back to 31 from 33", 31, SAFE),
]


def run(bootstrap_servers: str, *, settle_s: float = 0) -> dict[str, list[Any]]:
    """The answers of a fresh broker (node 1, level 31) to all cases, by their names.

    `settle_s` is how long a finalized level may take to show (Kafka's controller tells its brokers later).
    """
    answers: dict[str, list[Any]] = {}
    with Wire(bootstrap_servers) as wire:
        for case in CASES:
            assert case.name not in answers, case.name
            answers[case.name] = case.answer(wire, settle_s)
    return answers
