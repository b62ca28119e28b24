"""What of a broker's configuration file would stop its start, or is not kept. Nothing is started."""

from __future__ import annotations

from pathlib import Path

from stratalog.cli.doctor.diagnosis import Diagnosis
from stratalog.config import BrokerConfig, broker_advice, parse_properties, refuse_unkept
from stratalog.errors import InvalidConfigError, UsageError
from stratalog.jobs import Severity
from stratalog.util import REAL_FILESYSTEM


def examine_settings(path: Path) -> list[Diagnosis]:
    """Read a server.properties as `serve --config` does."""
    where = str(path)
    try:
        text = REAL_FILESYSTEM.read_bytes(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or "expected a text file of key=value lines"
        return [Diagnosis(Severity.ERROR, where, "unreadable", said, "correct --config")]
    try:
        properties = parse_properties(text, where)
        refuse_unkept(properties, lambda _key: where)
        config = BrokerConfig.from_properties(properties)
        advice = list(broker_advice(config))
    except (InvalidConfigError, UsageError) as error:
        return [
            Diagnosis(
                Severity.ERROR, where, "setting-refused", str(error), "change this setting; the broker does not start"
            )
        ]
    return [
        Diagnosis(
            Severity.WARNING, where, "setting-without-effect", each, "remove or correct it; docs/configuration.md"
        )
        for each in advice
    ]


def broker_config(path: Path) -> BrokerConfig | None:
    """Return the configuration of a server.properties; None where `examine_settings` says what is wrong with it."""
    try:
        text = REAL_FILESYSTEM.read_bytes(path).decode()
        return BrokerConfig.from_properties(parse_properties(text, str(path)))
    except (OSError, UnicodeDecodeError, InvalidConfigError, UsageError):
        return None
