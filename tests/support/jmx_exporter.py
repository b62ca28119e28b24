"""The rules by which the JMX exporter is usually set up for Kafka, as a function: MBean and attribute in, metric name
out.

They are written down here a second time, from the exporter's own example configuration for Kafka in KRaft mode, so that
the names in the product are held against something else than themselves.
"""

from __future__ import annotations

import re


def exporter_name(mbean: str, attribute: str) -> str | None:
    """What the rules call an attribute of an MBean without its labels; None for what they pass over (rates, means)."""
    match = re.fullmatch(r"([\w.]+):type=([\w.-]+)(?:,name=([\w-]+))?", mbean)
    assert match is not None, mbean
    domain, kind, name = match.groups()
    # The rules say kafka.(\w+): a domain of three words falls through them, and is spelled the same way here.
    words = [domain.replace(".", "_"), kind]
    if name is None:
        if not re.fullmatch(r"[a-z0-9-]+", attribute):
            return None
        words.append(attribute)
    elif attribute == "Count" and "PerSec" in name:
        words += [re.sub(r"PerSec\w*", "", name), "total"]
    elif attribute == "Value":
        words.append(name)
    elif attribute == "Count":
        words += [name, "count"]
    else:
        return None
    return re.sub(r"[^a-z0-9_]", "_", "_".join(words).lower())
