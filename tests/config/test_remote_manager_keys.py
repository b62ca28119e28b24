"""The keys of the remote log manager are Kafka 4.4.0's, with its defaults and bounds.

The golden says how it was made.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from stratalog.config.broker import BROKER_KEYS, BrokerConfig
from stratalog.errors import InvalidConfigError

GOLDEN = Path(__file__).parents[1] / "golden" / "remote" / "ManagerKeys.tsv"
#: Ours is meant where none is named.
OURS = {"remote.log.metadata.manager.class.name": None}


class KafkaKey(NamedTuple):
    name: str
    type: str
    default: str
    bounds: str

    @property
    def limits(self) -> list[float | None]:
        """The smallest and the largest value of a number, None for no bound."""
        if not self.bounds.startswith("["):
            return [None, None]
        ends = self.bounds[1:-1].split(",")
        return [None if end in ("...", "") else float(end) for end in (ends[0], ends[-1])]


KEYS = [KafkaKey(*line.split("\t")) for line in GOLDEN.read_text().splitlines() if not line.startswith("#")]


def accepts(name: str, value: float) -> bool:
    try:
        BrokerConfig({name: f"{value:g}"})
    except InvalidConfigError:
        return False
    return True


@pytest.mark.parametrize("key", KEYS, ids=[key.name for key in KEYS])
def test_a_key_has_kafkas_type_default_and_bounds(key: KafkaKey) -> None:
    (ours,) = [known for known in BROKER_KEYS if known.name == key.name]
    assert ours.type.name == key.type
    default = BrokerConfig({})[key.name]
    if key.name in OURS:
        assert default == OURS[key.name]
    elif default is None or isinstance(default, bool):
        assert {None: "null", False: "false", True: "true"}[default] == key.default
    else:
        assert str(default) == key.default
    step = 0.01 if key.type == "DOUBLE" else 1
    smallest, largest = key.limits
    if smallest is not None:
        assert accepts(key.name, smallest)
        assert not accepts(key.name, smallest - step)
    if largest is not None:
        assert accepts(key.name, largest)
        assert not accepts(key.name, largest + step)
