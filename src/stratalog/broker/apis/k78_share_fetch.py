"""ShareFetch (78): records for a member of a share group (KIP-932), and its acknowledgements.

v1 and v2. v2: strict limits of records, and renewal of locks. Requests belong to a share session. Acknowledgements are
applied before new records are acquired. While the feature `share.version` is 0: UNSUPPORTED_VERSION.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stratalog.broker.groups import to_ms
from stratalog.broker.server import ApiKey, RecordSlices, RequestContext, SlicedResponse, handles
from stratalog.broker.share import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    Acknowledged,
    LeaderHints,
    SharedFetch,
    ShareFetched,
    SharePlace,
    ShareSession,
    ShareWish,
    check_share_request,
    named_places,
    next_epoch,
    place_of,
    readable_topics,
    refuse_share_request,
    take_acknowledgements,
)
from stratalog.errors import (
    InvalidRequestError,
    InvalidShareSessionEpochError,
    ShareSessionLimitReachedError,
    TopicAuthorizationFailedError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from stratalog.log.format import Isolation

_MODES = _BY_BATCHES, _STRICT = 0, 1
_Response = Mapping[SharePlace, ShareFetched]


@handles(ApiKey.SHARE_FETCH, versions=(1, 2), on_error=refuse_share_request, waits=True)
async def share_fetch(ctx: RequestContext, request: Any) -> Any:
    check_share_request(ctx, request)
    is_renewal = getattr(request, "is_renew_ack", False)
    if is_renewal:
        _check_renewal(request)
    names = named_places(ctx, request)
    says_something = any(each.acknowledgement_batches for topic in request.topics for each in topic.partitions)
    session = await _session(ctx, request, names, says_something=says_something)
    places = {} if session is None else {place: known.topic for place, known in session.partitions.items()}
    readable = readable_topics(ctx, {name for name in (*places.values(), *names.values()) if name is not None})
    said = await take_acknowledgements(ctx, request, names, readable) if says_something else {}
    found: _Response = {}
    if session is not None and not is_renewal:
        found = await _fetched(ctx, request, places, readable)
    response = _response(request, session, found)

    def answer_with(response: _Response) -> SlicedResponse:
        lock_ms = ctx.broker.share_leader.settings(request.group_id)["share.record.lock.duration.ms"]
        hints = LeaderHints(ctx)
        slices = RecordSlices()
        responses = _topics(ctx, response, said, hints, {**places, **names}, slices)
        message = ctx.respond(
            error_code=0, acquisition_lock_timeout=lock_ms, responses=responses, node_endpoints=hints.nodes()
        )
        return slices.response(message)

    answer = answer_with(response)
    if ctx.broker.quotas.pace is not None and ctx.count_fetched(answer.body_size):
        answer = answer_with({})
    if session is None:
        await ctx.broker.share_leader.close_session(request.group_id, request.member_id)
    return answer


def _check_renewal(request: Any) -> None:
    """Raise unless a request that renews locks requests no records."""
    wishes = {
        "maxBytes": request.max_bytes,
        "minBytes": request.min_bytes,
        "maxRecords": request.max_records,
        "maxWaitMs": to_ms(request.max_wait),
    }
    wrong = [f"{name} must be set to 0, " for name, value in wishes.items() if value]
    if wrong:
        raise InvalidRequestError("".join(wrong) + "if isRenewAck is true.")


async def _session(
    ctx: RequestContext, request: Any, names: Mapping[SharePlace, str | None], *, says_something: bool
) -> ShareSession | None:
    """Return the session after the changes of the request; None if it closes the session."""
    sessions = ctx.broker.share_leader.sessions
    group_id, member_id, epoch = request.group_id, request.member_id, request.share_session_epoch
    if epoch == FINAL_EPOCH:
        sessions.get(group_id, member_id)
        return None
    if epoch == INITIAL_EPOCH:
        if says_something:
            raise InvalidRequestError("The first request of a share session has no acknowledgements.")
        try:
            return sessions.open(group_id, member_id, names.items(), ctx.peer)
        except ShareSessionLimitReachedError:
            await asyncio.sleep(max(to_ms(request.max_wait), 0) / 1000)  # so that the member does not retry at once
            raise
    session = sessions.go_on(group_id, member_id, epoch)
    forgotten = (place_of(topic, number) for topic in request.forgotten_topics_data for number in topic.partitions)
    session.update(names.items(), forgotten)
    return session


async def _fetched(
    ctx: RequestContext, request: Any, places: Mapping[SharePlace, str | None], readable: set[str]
) -> _Response:
    broker = ctx.broker
    results: dict[SharePlace, ShareFetched] = {}
    wanted: list[tuple[SharePlace, str]] = []
    for place, topic in places.items():
        if topic is None:
            results[place] = ShareFetched(UnknownTopicIdError.code)
        elif topic not in readable:
            results[place] = ShareFetched(TopicAuthorizationFailedError.code)
        elif not broker.has_partition(topic, place.partition):
            results[place] = ShareFetched(UnknownTopicOrPartitionError.code)
        else:
            wanted.append((place, topic))
    mode = getattr(request, "share_acquire_mode", 0)
    if wanted and mode not in _MODES:
        raise UnknownServerError(f"Unknown share acquire mode id: {mode}")
    max_bytes = ctx.fetch_bytes_max(min(request.max_bytes, broker.config["fetch.max.bytes"]))
    is_committed = broker.share_leader.settings(request.group_id)["share.isolation.level"] == "read_committed"
    wish = ShareWish(
        group_id=request.group_id,
        member_id=request.member_id,
        places=_rotated(wanted, request.share_session_epoch),
        records_max=request.max_records,
        batch_size=request.batch_size,
        is_strict=mode == _STRICT,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        max_wait_ms=to_ms(request.max_wait),
        isolation=Isolation.TXN_COMMITTED if is_committed else Isolation.HIGH_WATERMARK,
    )
    ctx.end_work()  # a wait for records may follow
    return {**await SharedFetch(broker, wish).answers(), **results}


def _rotated(wanted: Sequence[tuple[SharePlace, str]], epoch: int) -> Sequence[tuple[SharePlace, str]]:
    """Rotate the partitions, so that each is first now and then."""
    at = epoch % len(wanted) if wanted else 0
    return (*wanted[at:], *wanted[:at])


def _response(request: Any, session: ShareSession | None, found: _Response) -> _Response:
    """Return the partitions of `found` that the response must include."""
    if session is None or request.share_session_epoch == INITIAL_EPOCH:
        return found
    if session.epoch != next_epoch(request.share_session_epoch):
        raise InvalidShareSessionEpochError("The share session has gone on without waiting for this answer.")
    return {
        place: each
        for place, each in found.items()
        if session.must_include(place, has_records=each.size > 0, is_error=each.error_code != 0)
    }


def _topics(
    ctx: RequestContext,
    response: _Response,
    said: Mapping[SharePlace, Acknowledged],
    hints: LeaderHints,
    names: Mapping[SharePlace, str | None],
    slices: RecordSlices,
) -> list[Any]:
    partitions: dict[SharePlace, Any] = {}
    for place in _both(response, said):
        fetched = response.get(place, ShareFetched())
        leader = hints.leader(names.get(place), place.partition, fetched.error_code)
        partitions[place] = _partition(ctx, place, fetched, said.get(place, Acknowledged()), leader, slices)
    topic_ids = dict.fromkeys(place.topic_id for place in partitions)
    return [
        ctx.make(
            "ShareFetchableTopicResponse",
            topic_id=topic_id,
            partitions=[each for place, each in partitions.items() if place.topic_id == topic_id],
        )
        for topic_id in topic_ids
    ]


def _both(fetched: Iterable[SharePlace], said: Iterable[SharePlace]) -> Iterable[SharePlace]:
    return dict.fromkeys((*fetched, *said))


def _partition(
    ctx: RequestContext,
    place: SharePlace,
    fetched: ShareFetched,
    said: Acknowledged,
    leader: Any,
    slices: RecordSlices,
) -> Any:
    acquired = [
        ctx.make("AcquiredRecords", first_offset=run.first, last_offset=run.last, delivery_count=run.delivery_count)
        for run in fetched.acquired
    ]
    return ctx.make(
        "PartitionData",
        partition_index=place.partition,
        error_code=fetched.error_code,
        acknowledge_error_code=said.error_code,
        acknowledge_error_message=said.message,
        current_leader=leader,
        records=slices.mark(fetched.records),
        acquired_records=acquired,
    )
