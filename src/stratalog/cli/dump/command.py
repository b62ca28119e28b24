"""The command: which files, which options, and one exit code for all of them."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Annotated

import typer

from stratalog.cli.dump.files import dump_file, kind_of
from stratalog.cli.dump.output import DumpOptions, JsonOutput, Problems, TextOutput
from stratalog.cli.dump.source import Source, opened
from stratalog.errors import UsageError


def dump(
    files: Annotated[list[str], typer.Argument(help="Paths or object-store URLs.", metavar="FILE..")],
    print_data_log: Annotated[
        bool, typer.Option("--print-data-log", help="Print keys and values; implies --deep-iteration.")
    ] = False,
    deep_iteration: Annotated[
        bool, typer.Option("--deep-iteration", help="Print every record, not only the batches.")
    ] = False,
    verify_index_only: Annotated[
        bool, typer.Option("--verify-index-only", help="Verify indexes against the log; print no entries.")
    ] = False,
    index_sanity_check: Annotated[
        bool, typer.Option("--index-sanity-check", help="Only the check that a broker makes when it starts.")
    ] = False,
    offsets_decoder: Annotated[
        bool, typer.Option("--offsets-decoder", help="Decode the records of __consumer_offsets.")
    ] = False,
    transaction_log_decoder: Annotated[
        bool, typer.Option("--transaction-log-decoder", help="Decode the records of __transaction_state.")
    ] = False,
    remote_log_metadata_decoder: Annotated[
        bool,
        typer.Option("--remote-log-metadata-decoder", help="Decode the records of __remote_log_metadata."),
    ] = False,
    share_group_state_decoder: Annotated[
        bool, typer.Option("--share-group-state-decoder", help="Decode the records of __share_group_state.")
    ] = False,
    skip_record_metadata: Annotated[
        bool, typer.Option("--skip-record-metadata", help="Of records, print only keys and values.")
    ] = False,
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", min=0, help="Look only at that many bytes of each log.")
    ] = None,
    store_option: Annotated[
        list[str] | None,
        typer.Option(
            "--store-option", metavar="KEY=VALUE", help="Option of the object store, such as endpoint=URL."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")] = False,
) -> int:
    """Print segment, index and checkpoint files as kafka-dump-log does.

    Exit code 1 if something is damaged (what and where stands on stderr), 2 for a file that is not there or is of no kind
    that is known.

    \b
    Example:
      stratalog dump --deep-iteration data/flights-0/00000000000000000000.log
    """
    decoders = {
        "offsets": offsets_decoder,
        "transaction-log": transaction_log_decoder,
        "remote-log-metadata": remote_log_metadata_decoder,
        "share-group-state": share_group_state_decoder,
    }
    chosen = [name for name, is_chosen in decoders.items() if is_chosen]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0]}-decoder and --{chosen[1]}-decoder cannot both be given")
    options = DumpOptions(
        print_data_log=print_data_log,
        deep_iteration=deep_iteration,
        verify_index_only=verify_index_only,
        index_sanity_check=index_sanity_check,
        skip_record_metadata=skip_record_metadata,
        json=as_json,
        decoder=chosen[0] if chosen else None,
        max_bytes=max_bytes,
    )
    store_options = dict(_key_value(text) for text in store_option or ())
    problems = Problems()
    with ExitStack() as stack:
        sources: list[Source] = []
        for name in files:  # all of them first: a wrong name is told before anything is printed
            kind_of(name)
            sources.append(stack.enter_context(opened(name, store_options)))
        output = (JsonOutput if as_json else TextOutput)(sys.stdout.buffer, options)
        for source in sources:
            dump_file(source, output, problems)
            output.flush()
            problems.flush()
    return 1 if problems.found else 0


def _key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--store-option {text}: expected KEY=VALUE")
    return key, value
