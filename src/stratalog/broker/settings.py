"""The broker's configuration: the static one, and dynamic changes on top of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from stratalog.broker.metadata import ClusterMetadata, InForce, in_force, small_broker_index_warnings
from stratalog.config import BrokerConfig, listener_settings, minimum_advice
from stratalog.engine import LogManager
from stratalog.errors import InvalidConfigError, InvalidRequestError

if TYPE_CHECKING:
    from stratalog.broker.security import ServerTls
    from stratalog.broker.topics import TopicManager

logger = logging.getLogger(__name__)


class BrokerSettings:
    """The current configuration, and changes to it. Any thread may read `current`, which is replaced, never changed."""

    def __init__(self, static: BrokerConfig, metadata: ClusterMetadata, logs: LogManager) -> None:
        #: The configuration at startup, without dynamic changes.
        self.static = static
        self.current = static
        self._metadata = metadata
        self._logs = logs
        self._node_id: int = static["node.id"]
        self._ignored: Mapping[str, str] = {}
        #: TLS by listener; replaced when its settings change.
        self.tls: dict[str, ServerTls] = {}
        self.take_stored()

    def take_stored(self) -> None:
        """Apply the stored dynamic configuration, as far as it is consistent."""
        found = in_force(self.static, self._dynamic(), large=self._large_segments())
        for name, why in found.ignored.items():
            logger.warning(
                "The dynamic value of %s is ignored: %s. Set another value, or delete it "
                "('stratalog configs alter --entity-type brokers --delete-config %s')",
                name,
                why,
                name,
            )
        self._put_in_force(found)
        self._take_dynamic_tls()

    def open_tls(self, tls: Mapping[str, ServerTls]) -> Mapping[str, ServerTls]:
        """Set the listeners' TLS from the configuration file, and return the current one.

        Dynamic settings that are no longer usable are ignored: they must not prevent a broker from starting.
        """
        self.tls.update(tls)
        self._take_dynamic_tls()
        return self.tls

    def _take_dynamic_tls(self) -> None:
        for name, each in list(self.tls.items()):
            try:
                self.tls[name] = each.with_config(listener_settings(self.current, name))
            except InvalidConfigError as error:
                logger.error("The dynamic TLS settings of listener %s are ignored: %s", name, error)

    def _changed_tls(self, config: BrokerConfig) -> dict[str, ServerTls]:
        try:
            return {name: each.with_config(listener_settings(config, name)) for name, each in self.tls.items()}
        except InvalidConfigError as error:
            raise InvalidRequestError(str(error)) from error

    def _put_in_force(self, found: InForce) -> None:
        self.current, self._ignored = found.config, found.ignored
        self._logs.update_broker_config(self.current)
        if self._logs.remote is not None:
            self._logs.remote.reconfigure(self.current)

    def _dynamic(self, changes: Mapping[int | None, Mapping[str, str]] | None = None) -> dict[str, str]:
        """Return the dynamic settings, this broker's over the cluster's, optionally with other values of one level."""
        levels = {
            None: self._metadata.broker_configs(None),
            self._node_id: self._metadata.broker_configs(self._node_id),
        }
        levels.update(changes or {})
        return {**levels[None], **levels[self._node_id]}

    def _large_segments(self) -> bool:
        return self._metadata.large_segments

    def check(self, node_id: int | None, configs: Mapping[str, str], *, stores: bool) -> None:
        """Raise InvalidConfigError or InvalidRequestError unless one broker, or (None) all, may have these configs.

        `stores`: whether to open the key and trust stores.
        """
        found = self._with(node_id, configs)
        if stores:
            self._changed_tls(found.config)

    def resulting(self, node_id: int | None, configs: Mapping[str, str]) -> BrokerConfig:
        """Return what this broker would have if it, or (None) all, had these configs: its own hide those for all."""
        return in_force(self.static, self._dynamic({node_id: configs}), large=self._large_segments()).config

    def _with(self, node_id: int | None, configs: Mapping[str, str]) -> InForce:
        """Return what would be in force. Raises InvalidConfigError for a value that cannot be."""
        before = self._dynamic()
        after = self._dynamic({node_id: configs})
        found = in_force(self.static, after, large=self._large_segments())
        for name, why in found.ignored.items():
            if name not in self._ignored or before.get(name) != after[name]:
                raise InvalidConfigError(why)
        return found

    def set(
        self, node_id: int | None, configs: Mapping[str, str], topics: TopicManager, *, validate_only: bool = False
    ) -> None:
        """Replace the dynamic configuration of one broker, or (None) of all, with immediate effect.

        It is checked against the file, itself and every topic; after an InvalidConfigError nothing has changed.
        """
        with topics.changing:
            found = self._with(node_id, configs)
            topics.check_broker_defaults(found.config)
            tls = self._changed_tls(found.config)
            if validate_only:
                return
            topics.store.set_broker_configs(node_id, configs)
            self._put_in_force(found)
            self.tls.update(tls)
            topics.refresh_configs()
        for warning in (*small_broker_index_warnings(self.current), *minimum_advice(self.current)):
            logger.warning("%s", warning)
