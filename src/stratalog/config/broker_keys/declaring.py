"""What the tables of broker keys have in common: short names of types, and how a key is declared."""

from __future__ import annotations

from typing import Any, Final

from stratalog.config.keys import ConfigKey, ConfigType

INT: Final = ConfigType.INT
LONG: Final = ConfigType.LONG
BOOL: Final = ConfigType.BOOLEAN
STR: Final = ConfigType.STRING
LIST: Final = ConfigType.LIST
DOUBLE: Final = ConfigType.DOUBLE
SHORT: Final = ConfigType.SHORT
PASSWORD: Final = ConfigType.PASSWORD

ONE_REPLICA: Final = "a broker by itself keeps one replica"
NO_OTHERS: Final = "a broker by itself connects to no other"


def key(
    name: str,
    type_: ConfigType,
    default: Any,
    doc: str,
    validator: Any = None,
    *,
    dynamic: bool = False,
    no_effect: str = "",
) -> ConfigKey:
    return ConfigKey(name, type_, default, doc, validator, dynamic, no_effect=no_effect)
