"""AlterUserScramCredentials (51): set and remove SCRAM credentials. v0.

The client salts the password; the broker never sees it. A user's changes are done together or not at all.
"""

from __future__ import annotations

from collections import Counter
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
    changes = [*request.deletions, *request.upsertions]
    touched = Counter((change.name, change.mechanism) for change in changes)
    errors: dict[str, KafkaError] = {}
    put: dict[tuple[str, str], ScramCredential] = {}
    remove: list[tuple[str, str]] = []
    for change in changes:
        try:
            mechanism = _check(change, touched[change.name, change.mechanism])
            if change in request.deletions:
                _check_deletion(ctx, mechanism, change.name)
        except KafkaError as error:
            errors.setdefault(change.name, error)
    for change in changes:
        if change.name in errors:
            continue
        mechanism = _MECHANISMS[change.mechanism]
        if change in request.deletions:
            remove.append((mechanism, change.name))
        else:
            put[mechanism, change.name] = scram_credential(
                mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations
            )
    if put or remove:
        await ctx.broker.workers.run(ctx.broker.scram.change, put, remove)
    return ctx.respond(
        results=[_result(ctx, user, errors.get(user)) for user in dict.fromkeys(c.name for c in changes)]
    )


def _check(change: Any, times: int) -> str:
    """Return the mechanism of a change that may be made."""
    if not change.name:
        raise UnacceptableCredentialError("Username must not be empty")
    mechanism = _MECHANISMS.get(change.mechanism)
    if mechanism is None:
        raise UnsupportedSaslMechanismError("Unknown SCRAM mechanism")
    if times > 1:
        raise DuplicateResourceError("A user credential cannot be altered twice in the same request")
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
