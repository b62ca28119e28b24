"""Find keys of a configuration file that would stop a broker at startup or have no effect. Nothing is started."""

from __future__ import annotations

from pathlib import Path

from stratalog.broker.server import check_listeners
from stratalog.cli.doctor.diagnosis import Diagnosis
from stratalog.config import LISTENERS, BrokerConfig, broker_advice, parse_properties, refuse_unkept
from stratalog.errors import InvalidConfigError, UsageError
from stratalog.jobs import Severity
from stratalog.util import REAL_FILESYSTEM


def examine_settings(path: Path) -> tuple[BrokerConfig | None, list[Diagnosis]]:
    """Read a server.properties as `serve --config` does; only once, since it may be a pipe.

    Returns the configuration, None if unreadable, and its problems.
    """
    where = str(path)
    try:
        text = REAL_FILESYSTEM.read_bytes(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or "expected a text file of key=value lines"
        return None, [Diagnosis(Severity.ERROR, where, "unreadable", said, "correct --config")]
    config: BrokerConfig | None = None
    try:
        properties = parse_properties(text, where)
        config = BrokerConfig.from_properties(properties)
        refuse_unkept(properties, lambda _key: where)
        advice = list(broker_advice(config))
        if properties.get(LISTENERS):  # else serve has its --listen
            check_listeners(config)
    except (InvalidConfigError, UsageError) as error:
        mend = "change this setting; the broker does not start"
        return config, [Diagnosis(Severity.ERROR, where, "setting-refused", str(error), mend)]
    mend = "remove or correct it; docs/configuration.md"
    return config, [Diagnosis(Severity.WARNING, where, "setting-without-effect", each, mend) for each in advice]
