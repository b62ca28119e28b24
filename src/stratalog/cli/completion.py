"""`stratalog completion`: the script that a shell needs, and the names that a cluster can complete."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from stratalog.errors import StratalogError
from stratalog.wire import ApiKey

#: Set by the scripts to request completions.
COMPLETE_VARIABLE = "_STRATALOG_COMPLETE"

_PROGRAM = "stratalog"
#: How long a shell waits for the names of a cluster.
_TIMEOUT_S = 1.0


class Shell(Enum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", show_default=False, help="The shell.")],
) -> int:
    """Print a script that completes commands, options, and names of topics and groups.

    The names come from the broker of --bootstrap-server or STRATALOG_BOOTSTRAP_SERVER.

    \b
    Examples:
      source <(stratalog completion bash)
      stratalog completion zsh > ~/.zfunc/_stratalog
      stratalog completion fish > ~/.config/fish/completions/stratalog.fish
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    print(get_completion_script(prog_name=_PROGRAM, complete_var=COMPLETE_VARIABLE, shell=shell.value))
    return 0


def prepare_completion() -> None:
    """Prepare the command line for completion if a script requests it."""
    if COMPLETE_VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()


def complete_topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the topics with this prefix; none without a broker."""
    return _names(ctx, incomplete, _topics)


def complete_groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the groups with this prefix; none without a broker."""
    return _names(ctx, incomplete, _groups)


def complete_users(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the users with SCRAM credentials and this prefix; none without a broker."""
    return _names(ctx, incomplete, _users)


def complete_quotas(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of quotas with this prefix: of addresses with --ip, else of users and client ids."""
    # only completion of a quota needs their names
    from stratalog.broker.quotas import ADDRESS_QUOTAS, CLIENT_QUOTAS

    of_address = ctx.params.get("ip") or ctx.params.get("ip_defaults")
    names = ADDRESS_QUOTAS if of_address else CLIENT_QUOTAS
    equals = "" if ctx.info_name == "remove" else "="
    return [f"{name}{equals}" for name in names if name.startswith(incomplete)]


def complete_tokens(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of delegation tokens with this prefix; none without a broker."""
    return _names(ctx, incomplete, _tokens)


def _names(ctx: typer.Context, incomplete: str, names_of: Any) -> list[str]:
    # every command line loads this module, and only completion of a name needs a client
    from stratalog.cli.connection import ClusterOptions
    from stratalog.cli.options import COMMAND_CONFIG_VARIABLE, bootstrap_from_environment
    from stratalog.wire.client import Cluster

    server = ctx.params.get("bootstrap_server") or bootstrap_from_environment()
    if server is None:
        return []
    config = ctx.params.get("command_config") or os.environ.get(COMMAND_CONFIG_VARIABLE)
    options = ClusterOptions(bootstrap_server=server, command_config=Path(config) if config else None)
    try:
        with Cluster(options.connection(), _TIMEOUT_S) as cluster:
            return sorted(name for name in names_of(cluster) if name.startswith(incomplete))
    except StratalogError:
        return []


def _topics(cluster: Any) -> list[str]:
    return [name for name, topic in cluster.topics().items() if not topic.is_internal]


def _users(cluster: Any) -> list[str]:
    answer = cluster.any.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, (0, 0), users=None)
    return [str(result.user) for result in answer.results]


def _tokens(cluster: Any) -> list[str]:
    answer = cluster.any.call(ApiKey.DESCRIBE_DELEGATION_TOKEN, (1, 3), owners=None)
    return [str(token.token_id) for token in answer.tokens]


def _groups(cluster: Any) -> list[str]:
    from stratalog.cli.groups import list_groups  # loads a client, see above

    return list(list_groups(cluster))
