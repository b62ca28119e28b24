"""Check that this broker and the controllers both have an authorizer, or both have none.

A broker without an authorizer would give every client full access to a cluster whose controllers have one, so it does
not join. In the opposite case the broker checks its clients, but the controllers execute forwarded requests unchecked.
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
#: A filter of the rules about the cluster, which are few; only the existence of a response matters.
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
    """Raise UsageError if this broker would bypass the cluster's access rules; warn of the opposite."""
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
        f" let clients do everything. Set {AUTHORIZER}={STANDARD_AUTHORIZER}, and super.users as at the other brokers"
    )
