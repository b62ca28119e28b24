"""Levels of this process's loggers, for DescribeConfigs and IncrementalAlterConfigs of a broker logger.

A level is the effective one: a logger without its own inherits that of its nearest parent. A change lasts until the
process ends. Names of levels are Kafka's: FATAL is Python's CRITICAL, TRACE is below DEBUG.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from stratalog.broker.metadata.config_changes import Operation, node_in_name
from stratalog.broker.metadata.config_entries import ConfigEntry, ConfigSource
from stratalog.errors import InvalidConfigError, InvalidRequestError

ROOT = "root"
LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
_UNKNOWN_TYPE = 0


def logger_entries(only: Collection[str] | None = None) -> list[ConfigEntry]:
    """Return every logger with its level, sorted by name."""
    names = sorted({ROOT, *logging.root.manager.loggerDict})
    return [
        ConfigEntry(
            name=name,
            value=_name(_effective_level(name)),
            source=ConfigSource.BROKER_LOGGER,
            is_read_only=False,
            is_sensitive=False,
            type=_UNKNOWN_TYPE,
            documentation="",
            synonyms=(),
        )
        for name in names
        if only is None or name in only
    ]


def alter_loggers_of(
    name: str, node_id: int, changes: Sequence[tuple[str, int, str | None]], *, validate_only: bool
) -> None:
    """Set and reset levels from (logger, operation, level), each logger once: all, or none.

    `name` is that of the resource, which has to be this broker's id. Raises InvalidRequestError and InvalidConfigError
    with Kafka's messages.
    """
    wanted = node_in_name(name)
    if wanted != node_id:
        raise InvalidRequestError(f"Unexpected node id. Expected {node_id}, but received {name}")
    for name, operation, level in changes:
        _check(name, operation, level)
    if validate_only:
        return
    for name, operation, level in changes:
        _logger(name).setLevel(LEVELS[level or ""] if operation == Operation.SET else logging.NOTSET)


def _check(name: str, operation: int, level: str | None) -> None:
    if operation not in (Operation.SET, Operation.DELETE):
        known = operation in set(Operation)
        what = f"{Operation(operation).name} operation" if known else f"Unknown operation type {operation}"
        raise InvalidRequestError(f"{what} is not allowed for the BROKER_LOGGER resource")
    if name != ROOT and name not in logging.root.manager.loggerDict:
        raise InvalidConfigError(f"Logger {name} does not exist!")
    if operation == Operation.SET and level not in LEVELS:
        raise InvalidConfigError(
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS))}"
        )
    if operation == Operation.DELETE and name == ROOT:
        raise InvalidRequestError(f"Removing the log level of the {ROOT} logger is not allowed")


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _effective_level(name: str) -> int:
    """Return the effective level, without creating loggers for parents that do not exist."""
    while name and name != ROOT:
        found = logging.root.manager.loggerDict.get(name)
        if isinstance(found, logging.Logger) and found.level:
            return found.level
        name = name.rpartition(".")[0]
    return logging.root.level


def _name(level: int) -> str:
    """Return Kafka's name of a level; for one between two names, the lower."""
    return next((name for name, number in LEVELS.items() if level >= number), "TRACE")
