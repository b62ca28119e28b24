"""ListTransactions (66): the transactional ids of this broker.

v0 to v2. Filters: states, producer ids, from v1 on the minimum duration of an open transaction (KIP-994), from v2 on a
pattern for the whole id (KIP-1152). While any id is loading: COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

import re
from typing import Any

from stratalog.broker.groups import to_ms
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.transactions import STATES_BY_TITLE
from stratalog.errors import InvalidRegularExpressionError


@handles(ApiKey.LIST_TRANSACTIONS, versions=(0, 2))
def list_transactions(ctx: RequestContext, request: Any) -> Any:
    try:
        pattern = re.compile(getattr(request, "transactional_id_pattern", None) or "(?s).*")
    except re.error as error:
        raise InvalidRegularExpressionError(f"transactional id pattern: {error}") from error
    ctx.broker.transactions.loading.check_all()
    now_ms = ctx.broker.clock.now_ms()
    open_for_ms = _duration_ms(request)
    states = set(request.state_filters)
    found = [
        known
        for known in ctx.broker.transactions.transactions()
        if (not request.producer_id_filters or known.producer_id in request.producer_id_filters)
        and (not states or known.state.title in states)
        and (open_for_ms < 0 or now_ms - known.start_ms > open_for_ms)
        and pattern.fullmatch(known.transactional_id)
    ]
    return ctx.respond(
        unknown_state_filters=[title for title in dict.fromkeys(request.state_filters) if title not in STATES_BY_TITLE],
        transaction_states=[
            ctx.make(
                "TransactionState",
                transactional_id=known.transactional_id,
                producer_id=known.producer_id,
                transaction_state=known.state.title,
            )
            for known in found
        ],
    )


def _duration_ms(request: Any) -> int:
    duration = getattr(request, "duration_filter", -1)
    return duration if isinstance(duration, int) else to_ms(duration)
