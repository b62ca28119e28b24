"""The lifecycle of a broker at the controller: registration, heartbeats, fencing, controlled shutdown.

    NOT_RUNNING -> STARTING -> RECOVERY -> RUNNING -> PENDING_CONTROLLED_SHUTDOWN -> SHUTTING_DOWN

STARTING ends when the controller confirms that the broker has caught up with the metadata, RECOVERY when it unfences
the broker. A broker that is fenced while it runs stays RUNNING until it is unfenced. Heartbeats have their own thread:
a pause of `broker.session.timeout.ms` fences. Source: `BrokerLifecycleManager`, KIP-631, KIP-841.
"""

from __future__ import annotations

import enum
import logging
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from stratalog.broker.cluster.controller_channel import ControllerChannel, connect_to_node
from stratalog.broker.cluster.features import claimed_features
from stratalog.broker.cluster.image import METADATA_VERSION
from stratalog.broker.cluster.quorum import Address
from stratalog.errors import StratalogError, UsageError
from stratalog.util import SYSTEM_CLOCK, Clock, random_uuid
from stratalog.wire import ApiKey
from stratalog.wire.client import Client, ConnectionOptions, UnreachableError

logger = logging.getLogger(__name__)

_REGISTRATION_VERSIONS: Final = (1, 4)
_HEARTBEAT_VERSIONS: Final = (0, 2)
#: First version of a registration that may contain features with a minimum level of 0.
_ZERO_LEVELS_FROM: Final = 4

_NOT_CONTROLLER, _STALE_EPOCH, _DUPLICATE, _UNSUPPORTED_VERSION = 41, 77, 101, 35
_INVALID_REGISTRATION, _WRONG_CLUSTER, _NOT_AUTHORIZED = 119, 104, 31
#: Pauses before retries, and between heartbeats of a broker that waits for something.
_RETRY_S: Final = 0.5
_EAGER_S: Final = 0.1


class LifecycleState(enum.Enum):
    NOT_RUNNING = "not running"
    STARTING = "starting"
    RECOVERY = "recovery"
    RUNNING = "running"
    PENDING_CONTROLLED_SHUTDOWN = "pending controlled shutdown"
    SHUTTING_DOWN = "shutting down"


class RegistrationRefusedError(UsageError):
    """The controller rejects this broker; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvertisedListener:
    """The address of a listener; `protocol` is Kafka's number, 0 PLAINTEXT to 3 SASL_SSL."""

    name: str
    host: str
    port: int
    protocol: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The data of a broker's registration."""

    node_id: int
    cluster_id: str
    listeners: Sequence[AdvertisedListener]
    directory_ids: Sequence[UUID]
    rack: str | None = None
    #: The epoch at the last clean shutdown of the directories, -1 if unknown (KIP-966).
    previous_broker_epoch: int = -1
    #: Whether it supports segments over 2 GiB.
    large_segments: bool = False


class Lifecycle:
    """Registers and sends heartbeats from `start` to `close`. Its methods are thread-safe."""

    def __init__(
        self,
        registration: Registration,
        connection: ConnectionOptions,
        *,
        controller: Callable[[], Address | None],
        applied_offset: Callable[[], int],
        failed_dirs: Callable[[], Sequence[UUID]] = tuple,
        heartbeat_s: float = 2.0,
        registration_timeout_s: float = 60.0,
        clock: Clock = SYSTEM_CLOCK,
        connect: Callable[[str, int, ConnectionOptions], Client] = connect_to_node,
    ) -> None:
        self._registration = registration
        # A heartbeat that takes longer than the session timeout is useless.
        patient = replace(connection, connect_timeout_s=2.0, request_timeout_s=4.5)
        self._channel = ControllerChannel(patient, controller, connect)
        self._applied_offset = applied_offset
        self._failed_dirs = failed_dirs
        self._heartbeat_s = heartbeat_s
        self._registration_timeout_s = registration_timeout_s
        self._clock = clock
        self._incarnation = random_uuid()
        self._lock = threading.Condition()
        self._state = LifecycleState.NOT_RUNNING
        self._broker_epoch = -1
        self._wants_fence = True
        self._is_fenced = True
        self._soon = False
        self._failure: Exception | None = None
        self._told_duplicate = False
        self._thread = threading.Thread(target=self._run, name="broker-lifecycle", daemon=True)

    # --- public -----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> LifecycleState:
        return self._state

    @property
    def broker_epoch(self) -> int:
        """The epoch of the registration; -1 before it."""
        return self._broker_epoch

    @property
    def is_fenced(self) -> bool:
        """Whether the last heartbeat response said so; True before the first one."""
        return self._is_fenced

    @property
    def failure(self) -> Exception | None:
        """The error that ended the lifecycle, if any."""
        return self._failure

    def start(self) -> None:
        self._change(LifecycleState.STARTING)
        self._thread.start()

    def ready_to_unfence(self) -> None:
        """Request to be unfenced: the broker serves its assigned partitions."""
        with self._lock:
            self._wants_fence = False
            self._hurry()

    def directory_failed(self) -> None:
        """Send a heartbeat with the failed directories at once: the controller elects other leaders."""
        with self._lock:
            self._hurry()

    def begin_controlled_shutdown(self) -> None:
        """Request to hand over leadership. The broker continues to serve until the state is SHUTTING_DOWN."""
        with self._lock:
            if self._state in (LifecycleState.NOT_RUNNING, LifecycleState.SHUTTING_DOWN):
                return
            registered = self._broker_epoch >= 0
            self._state = LifecycleState.PENDING_CONTROLLED_SHUTDOWN if registered else LifecycleState.SHUTTING_DOWN
            self._hurry()

    def wait_for(self, reached: Callable[[Lifecycle], bool], timeout_s: float) -> bool:
        """Wait until `reached` is true or the lifecycle has failed, at most `timeout_s`; return whether it is true."""
        with self._lock:
            self._lock.wait_for(lambda: reached(self) or self._failure is not None, timeout_s)
            return reached(self)

    def close(self) -> None:
        """Stop at once. Idempotent."""
        self._change(LifecycleState.SHUTTING_DOWN)
        with suppress(OSError):
            self._channel.close()
        if self._thread.is_alive():
            self._thread.join()

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._register()
            while self._state is not LifecycleState.SHUTTING_DOWN:
                pause = self._heartbeat()
                with self._lock:
                    self._lock.wait_for(lambda: self._soon or self._state is LifecycleState.SHUTTING_DOWN, pause)
                    self._soon = False
        except Exception as error:
            if self._state is not LifecycleState.SHUTTING_DOWN:
                if not isinstance(error, StratalogError):
                    logger.exception("The broker's lifecycle failed")
                with self._lock:
                    self._failure = error
                    self._lock.notify_all()
        finally:
            self._channel.close()

    def _register(self) -> None:
        """Register, with retries. Raises RegistrationRefusedError, or UnreachableError after the time limit.

        The limit is for the first registration. A broker that was registered serves others, and keeps trying.
        """
        timeout_s = self._registration_timeout_s if self._broker_epoch < 0 else math.inf
        deadline = self._clock.monotonic() + timeout_s
        while self._state is not LifecycleState.SHUTTING_DOWN:
            error: Exception
            try:
                answer = self._call(ApiKey.BROKER_REGISTRATION, _REGISTRATION_VERSIONS, self._registration_fields())
            except (UnreachableError, OSError) as lost:
                error = lost
            else:
                code = int(answer.error_code)
                if code == 0:
                    self._registered(int(answer.broker_epoch))
                    return
                error = self._refusal(code, answer.error_code.name.upper())
            if self._clock.monotonic() >= deadline:
                raise error
            self._pause(_RETRY_S)

    def _registration_fields(self) -> dict[str, Any]:
        mine = self._registration
        return {
            "broker_id": mine.node_id,
            "cluster_id": mine.cluster_id,
            "incarnation_id": self._incarnation,
            "listeners": [
                {"name": each.name, "host": each.host, "port": each.port, "security_protocol": each.protocol}
                for each in mine.listeners
            ],
            "features": self._features(),
            "rack": mine.rack,
            "log_dirs": list(mine.directory_ids),
            "previous_broker_epoch": mine.previous_broker_epoch,
        }

    def _features(self) -> list[dict[str, Any]]:
        client = self._channel.connected()
        with_zero = client.version(ApiKey.BROKER_REGISTRATION, _REGISTRATION_VERSIONS) >= _ZERO_LEVELS_FROM
        return [
            {"name": name, "min_supported_version": low, "max_supported_version": high}
            for name, (low, high) in claimed_features(large_segments=self._registration.large_segments).items()
            if with_zero or low > 0 or name == METADATA_VERSION
        ]

    def _registered(self, epoch: int) -> None:
        logger.info("Registered with the controller in broker epoch %d", epoch)
        with self._lock:
            self._broker_epoch = epoch
            self._is_fenced = True
            self._lock.notify_all()

    def _refusal(self, code: int, name: str) -> Exception:
        """Return the error for the end of the time limit; raise those that retries cannot resolve."""
        node = self._registration.node_id
        if code == _DUPLICATE:
            if not self._told_duplicate:
                logger.warning(
                    "Broker %d is registered by another process, whose session has not ended yet; trying again", node
                )
                self._told_duplicate = True
            return RegistrationRefusedError(
                f"broker {node} is running already: another process is registered under this node.id. Stop it, or set"
                " another node.id"
            )
        if code == _NOT_CONTROLLER:
            self._channel.close()
            return UnreachableError("no controller leads the quorum")
        if code == _UNSUPPORTED_VERSION:
            raise RegistrationRefusedError(
                "the controller refuses this broker: a feature that the cluster has finalized is not supported by it."
                " 'kafka-features.sh describe' shows the levels of the cluster"
            )
        if code == _WRONG_CLUSTER:
            raise RegistrationRefusedError(
                f"the controllers are of another cluster than {self._registration.cluster_id}, to which this"
                " directory belongs"
            )
        if code == _NOT_AUTHORIZED:
            return RegistrationRefusedError(
                "the controller does not let this broker's principal register: CLUSTER_AUTHORIZATION_FAILED; put it"
                " among super.users of the controllers and brokers, or allow it CLUSTER_ACTION on the cluster"
            )
        if code == _INVALID_REGISTRATION:
            raise RegistrationRefusedError("the controller finds this broker's registration invalid; its log says why")
        return RegistrationRefusedError(f"the controller refuses this broker: {name}")

    # --- heartbeats -------------------------------------------------------------------------------------------------

    def _heartbeat(self) -> float:
        """Send a heartbeat; return the pause before the next."""
        closing = self._state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN
        fields = {
            "broker_id": self._registration.node_id,
            "broker_epoch": self._broker_epoch,
            "current_metadata_offset": max(self._applied_offset(), 0),
            "want_fence": self._wants_fence and not closing,
            "want_shut_down": closing,
            "offline_log_dirs": tuple(self._failed_dirs()),
            "cordoned_log_dirs": () if self._state is not LifecycleState.STARTING else None,
        }
        try:
            answer = self._call(ApiKey.BROKER_HEARTBEAT, _HEARTBEAT_VERSIONS, fields)
        except (UnreachableError, OSError) as error:
            logger.info("Heartbeat: %s", error)
            return _RETRY_S
        code = int(answer.error_code)
        if code == _STALE_EPOCH:
            logger.warning("The controller no longer knows broker epoch %d: registering again", self._broker_epoch)
            self._register()
            return 0
        if code != 0:
            logger.info("Heartbeat: %s", answer.error_code.name.upper())
            self._channel.close()
            return _RETRY_S
        return self._take(answer)

    def _take(self, answer: Any) -> float:
        with self._lock:
            self._is_fenced = bool(answer.is_fenced)
            if self._state is LifecycleState.STARTING and answer.is_caught_up:
                self._state = LifecycleState.RECOVERY
            if self._state is LifecycleState.RECOVERY and not answer.is_fenced:
                self._state = LifecycleState.RUNNING
            if self._state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN and answer.should_shut_down:
                self._state = LifecycleState.SHUTTING_DOWN
            self._lock.notify_all()
            waits = self._state in (LifecycleState.STARTING, LifecycleState.PENDING_CONTROLLED_SHUTDOWN)
            waits = waits or (self._state is LifecycleState.RECOVERY and not self._wants_fence)
            return min(_EAGER_S, self._heartbeat_s) if waits else self._heartbeat_s

    # --- the connection ---------------------------------------------------------------------------------------------

    def _call(self, key: ApiKey, versions: tuple[int, int], fields: dict[str, Any]) -> Any:
        return self._channel.call(key, versions, **fields)

    def _change(self, state: LifecycleState) -> None:
        with self._lock:
            self._state = state
            self._hurry()

    def _hurry(self) -> None:
        self._soon = True
        self._lock.notify_all()

    def _pause(self, seconds: float) -> None:
        with self._lock:
            self._lock.wait_for(lambda: self._state is LifecycleState.SHUTTING_DOWN, seconds)
