"""AlterUserScramCredentials (51): set and remove SCRAM credentials. v0.

The client salts the password; the broker never sees it. A request may change a user only once.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.security import ITERATIONS_MAX, ITERATIONS_MIN, SCRAM_HASHES, ScramCredential, scram_credential
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import (
    DuplicateResourceError,
    KafkaError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)

_MECHANISMS = dict(enumerate(SCRAM_HASHES, start=1))


@handles(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions=(0, 0))
async def alter_user_scram_credentials(ctx: RequestContext, request: Any) -> Any:
    errors: dict[str, KafkaError] = {}
    put: dict[str, tuple[str, ScramCredential]] = {}
    remove: dict[str, str] = {}
    changes = [*request.deletions, *request.upsertions]
    for number, change in enumerate(changes):
        name = change.name
        if name in errors:
            continue
        if name in put or name in remove:  # even of another mechanism, as in Kafka
            errors[name] = DuplicateResourceError("A user credential cannot be altered twice in the same request")
            put.pop(name, None)
            remove.pop(name, None)
            continue
        try:
            mechanism = _check(change)
            if number < len(request.deletions):
                _check_deletion(ctx, mechanism, name)
                remove[name] = mechanism
            else:
                put[name] = (
                    mechanism,
                    scram_credential(mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations),
                )
        except KafkaError as error:
            errors[name] = error
    if put or remove:
        try:
            await ctx.broker.workers.run(
                ctx.broker.scram.change,
                {(mechanism, name): credential for name, (mechanism, credential) in put.items()},
                [(mechanism, name) for name, mechanism in remove.items()],
            )
        except KafkaError as refused:  # the disk is full
            errors |= dict.fromkeys((*put, *remove), refused)
    return ctx.respond(
        results=[_result(ctx, user, errors.get(user)) for user in dict.fromkeys(c.name for c in changes)]
    )


def _check(change: Any) -> str:
    """Return the mechanism of a valid change."""
    if not change.name:
        raise UnacceptableCredentialError("Username must not be empty")
    mechanism = _MECHANISMS.get(change.mechanism)
    if mechanism is None:
        raise UnsupportedSaslMechanismError("Unknown SCRAM mechanism")
    iterations = getattr(change, "iterations", ITERATIONS_MIN)
    if iterations < ITERATIONS_MIN:
        raise UnacceptableCredentialError("Too few iterations")
    if iterations > ITERATIONS_MAX:
        raise UnacceptableCredentialError("Too many iterations")
    return mechanism


def _check_deletion(ctx: RequestContext, mechanism: str, user: str) -> None:
    if ctx.broker.scram.get(mechanism, user) is None:
        raise ResourceNotFoundError("Attempt to delete a user credential that does not exist")


def _result(ctx: RequestContext, user: str, error: KafkaError | None) -> Any:
    return ctx.make(
        "AlterUserScramCredentialsResult",
        user=user,
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.reason,
    )
