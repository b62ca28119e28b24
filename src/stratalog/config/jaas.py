"""Lines of JAAS, as Kafka's properties have them: a login module, a flag, and options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_LINE: Final = re.compile(r"""^\s*(?P<module>[\w.$]+)\s+required\b(?P<options>.*?);?\s*$""", re.DOTALL)
_OPTION: Final = re.compile(r"""([\w.\-@]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")


def jaas_module(text: str) -> str | None:
    """Return the class of the login module, without its package; None for what is no line of JAAS."""
    matched = _LINE.match(text)
    return None if matched is None else matched["module"].rpartition(".")[2]


def jaas_options(text: str) -> Mapping[str, str] | None:
    """Return the options of a line of JAAS, unquoted; None for what is none."""
    matched = _LINE.match(text)
    if matched is None:
        return None
    return {
        found[1]: re.sub(r"\\(.)", r"\1", next((each for each in found.groups()[1:] if each is not None), ""))
        for found in _OPTION.finditer(matched["options"])
    }
