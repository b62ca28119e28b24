"""AlterClientQuotas (49): set and remove quotas, independently for each entity; durable and in force. v0, v1.

As in Kafka, the first change of a duplicate entity is applied, and its result is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stratalog.broker.java_hashing import in_hash_order, string_hash
from stratalog.broker.quotas import QuotaEntity, address_of, addresses_of, check_quota, entity_of, keys_of
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import InvalidRequestError, KafkaError

#: Types and names as in the request and its response.
_Named = tuple[tuple[str, str | None], ...]
_Changes = dict[QuotaEntity, dict[str, float | None]]


@handles(ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1))
async def alter_client_quotas(ctx: RequestContext, request: Any) -> Any:
    quotas, workers = ctx.broker.quotas, ctx.broker.workers
    changes, results = await workers.run(_checked, request.entries)
    if changes and not request.validate_only:
        async with quotas.changing:
            try:
                await workers.run(ctx.broker.store.change_client_quotas, changes)
            except KafkaError as refused:  # the disk is full
                results = {named: error or refused for named, error in results.items()}
            else:
                quotas.put_in_force(changes, await workers.run(addresses_of, changes))
    return await ctx.beside(_answer, ctx, results)


def _answer(ctx: RequestContext, results: Mapping[_Named, KafkaError | None]) -> Any:
    return ctx.respond(entries=[_result(ctx, named, error) for named, error in results.items()])


def _checked(entries: Any) -> tuple[_Changes, dict[_Named, KafkaError | None]]:
    """Return the changes, and the result for each entity. Blocks: hosts are resolved."""
    changes: _Changes = {}
    results: dict[_Named, KafkaError | None] = {}
    for entry in entries:
        names = {each.entity_type: each.entity_name for each in entry.entity}
        named = tuple((kind, names[kind]) for kind in in_hash_order(sorted(names), string_hash))  # as messages have it
        keys = [op.key for op in entry.ops]
        if named in results or len(set(keys)) < len(keys):
            results[named] = InvalidRequestError(f"Ignoring duplicate entity {_as_java(named)}")
            continue
        try:
            entity = entity_of(named, lambda host: address_of(host) is not None)
            values = {op.key: None if op.remove else float(op.value) for op in entry.ops}
            for key, value in values.items():
                if value is not None:
                    check_quota(entity, key, value)
        except KafkaError as error:
            results[named] = error
        else:
            results[named] = None
            known = {key: value for key, value in values.items() if key in keys_of(entity)}
            if known:
                changes[entity] = known
    return changes, results


def _as_java(named: _Named) -> str:
    """Return an entity in the form of Kafka's messages."""
    return f"ClientQuotaEntity(entries={{{', '.join(f'{kind}={name}' for kind, name in named)}}})".replace(
        "=None", "=null"
    )


def _result(ctx: RequestContext, named: _Named, error: KafkaError | None) -> Any:
    return ctx.make(
        "EntryData",
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.reason,
        entity=[ctx.make("EntityData", entity_type=kind, entity_name=name) for kind, name in named],
    )
