"""Check that this broker and the controllers both have an authorizer, or both have none.

A broker without an authorizer among controllers that have one would let every client read and write everything, so it
does not join. The other way round this broker checks its clients, but the controllers carry out what it forwards to
them without a check.
"""

from __future__ import annotations

import logging
from typing import Any, Final, Protocol

from stratalog.config import AUTHORIZER, STANDARD_AUTHORIZER
from stratalog.errors import UsageError
from stratalog.wire import ApiKey

logger = logging.getLogger(__name__)

_VERSIONS: Final = (1, 3)
_SECURITY_DISABLED: Final = 54
#: Asked for are the rules about the cluster, which are few; that there is an answer is what counts.
_OF_THE_CLUSTER: Final = {
    "resource_type_filter": 4,
    "resource_name_filter": "kafka-cluster",
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


class _Channel(Protocol):
    def call(self, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> Any: ...


def ask_for_authorizer(controller: _Channel) -> bool:
    """Return whether a controller has an authorizer. Raises UnreachableError or OSError."""
    answer = controller.call(ApiKey.DESCRIBE_ACLS, _VERSIONS, **_OF_THE_CLUSTER)
    return int(answer.error_code) != _SECURITY_DISABLED


def refuse_open_door(*, at_controllers: bool, here: bool, rules: int) -> None:
    """Raise UsageError when this broker would serve openly what the cluster guards; warn of the opposite."""
    if here and not at_controllers:
        logger.warning(
            "The controllers have no authorizer: any client of this broker may create and delete topics and change"
            " configurations, because the controllers do that without a check. Set %s=%s there too",
            AUTHORIZER,
            STANDARD_AUTHORIZER,
        )
    if here or not (at_controllers or rules):
        return
    have = "controllers have an authorizer" if at_controllers else "metadata has access rules"
    raise UsageError(
        f"this broker cannot join the cluster, whose {have} ({rules} ACLs), without an authorizer of its own: it would"
        f" let everybody do everything. Set {AUTHORIZER}={STANDARD_AUTHORIZER}, and super.users as at the other brokers"
    )
