"""The command: which files, which options, and one exit code for all of them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated, Any

import typer

from stratalog.cli.dump.decoders import decoder_for
from stratalog.cli.dump.files import dump_file
from stratalog.cli.dump.output import SIZE_MAX, DumpOptions, JsonOutput, Problems, TextOutput
from stratalog.cli.dump.ranges import Bound, DumpRange
from stratalog.cli.dump.source import DumpSource, opened
from stratalog.cli.options import JsonLines, key_values
from stratalog.cli.streams import buffered_stdout
from stratalog.errors import UsageError

_LOGS, _INDEXES, _RECORDS, _PLACES = "Logs", "Indexes", "What records mean", "Which part, and from where"


def _flag(name: str, help_text: str, panel: str) -> Any:
    return typer.Option(name, help=help_text, rich_help_panel=panel)


def dump(
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="Paths or object-store URLs.", metavar="FILE..", show_default=False),
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option("--files", metavar="FILE,..", help="Same as FILE, for users of kafka-dump-log."),
    ] = None,
    deep_iteration: Annotated[
        bool, _flag("--deep-iteration", "Print every record, not only the batches.", _LOGS)
    ] = False,
    print_data_log: Annotated[
        bool, _flag("--print-data-log", "Print keys and values; implies --deep-iteration.", _LOGS)
    ] = False,
    skip_record_metadata: Annotated[
        bool, _flag("--skip-record-metadata", "Print only keys and values of records.", _LOGS)
    ] = False,
    max_bytes: Annotated[
        int | None,
        typer.Option(
            "--max-bytes",
            min=0,
            metavar="N",
            rich_help_panel=_LOGS,
            help="Read only the first N bytes of the file or range.",
        ),
    ] = None,
    verify_index_only: Annotated[
        bool, _flag("--verify-index-only", "Verify indexes against the log. Print no entries.", _INDEXES)
    ] = False,
    index_sanity_check: Annotated[
        bool, _flag("--index-sanity-check", "Check only what a broker checks at startup.", _INDEXES)
    ] = False,
    max_message_size: Annotated[
        int | None,
        typer.Option(
            "--max-message-size",
            min=0,
            metavar="N",
            rich_help_panel=_INDEXES,
            show_default=False,
            help="Report entries that point to a larger batch. Default: read batches of any size.",
        ),
    ] = None,
    offsets_decoder: Annotated[
        bool, _flag("--offsets-decoder", "Decode records of __consumer_offsets.", _RECORDS)
    ] = False,
    transaction_log_decoder: Annotated[
        bool, _flag("--transaction-log-decoder", "Decode records of __transaction_state.", _RECORDS)
    ] = False,
    cluster_metadata_decoder: Annotated[
        bool,
        _flag("--cluster-metadata-decoder", "Decode records of __cluster_metadata and its snapshots.", _RECORDS),
    ] = False,
    remote_log_metadata_decoder: Annotated[
        bool, _flag("--remote-log-metadata-decoder", "Decode records of __remote_log_metadata.", _RECORDS)
    ] = False,
    share_group_state_decoder: Annotated[
        bool, _flag("--share-group-state-decoder", "Decode records of __share_group_state.", _RECORDS)
    ] = False,
    key_decoder_class: Annotated[
        str | None,
        typer.Option(
            "--key-decoder-class",
            metavar="CLASS",
            rich_help_panel=_RECORDS,
            help="Decoder of keys: StringDecoder, IntegerDecoder, LongDecoder or DefaultDecoder of "
            "org.apache.kafka.tools.api, or a Python function from bytes to text, module:name.",
        ),
    ] = None,
    value_decoder_class: Annotated[
        str | None,
        typer.Option(
            "--value-decoder-class", metavar="CLASS", rich_help_panel=_RECORDS, help="Decoder of values, as for keys."
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="OFFSET|@POSITION",
            rich_help_panel=_PLACES,
            help="Start with the batch that holds this offset, or with the first batch at or after this byte.",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="OFFSET|@POSITION",
            rich_help_panel=_PLACES,
            help="Stop before the first batch that begins at or after this place.",
        ),
    ] = None,
    remote_option: Annotated[
        list[str] | None,
        typer.Option(
            "--remote-option",
            "--store-option",
            metavar="KEY=VALUE",
            rich_help_panel=_PLACES,
            help="An option of the object store, such as endpoint=URL.",
        ),
    ] = None,
    as_json: JsonLines = False,
) -> int:
    """Print segment, index, snapshot and checkpoint files as kafka-dump-log does.

    Exit code 1: something is damaged. stderr says what and where; the rest is printed.
    Exit code 2: a file does not exist or is of an unknown kind.

    \b
    Examples:
      stratalog dump data/flights-0/00000000000000000000.log
      stratalog dump data/flights-0/*.log --print-data-log --from 1000 --to 1010
      stratalog dump data/flights-0/*.log --deep-iteration --from @65536
      stratalog dump data/flights-0/*.index --verify-index-only
      stratalog dump data/flights-0/*.snapshot data/*-checkpoint
      stratalog dump data/__consumer_offsets-7/*.log --offsets-decoder --json
      stratalog dump data/__cluster_metadata-0/*.log --cluster-metadata-decoder
      stratalog dump s3://bucket/flights-ID/0/00000000000000000000-ID.log
    """
    names = [*(paths or ()), *(name for group in files or () for name in group.split(",") if name)]
    if not names:
        raise UsageError("no files given (see stratalog dump --help)")
    options = DumpOptions(
        print_data_log=print_data_log,
        deep_iteration=deep_iteration,
        verify_index_only=verify_index_only,
        index_sanity_check=index_sanity_check,
        skip_record_metadata=skip_record_metadata,
        json=as_json,
        decoder=_one_decoder(
            {
                "offsets": offsets_decoder,
                "transaction-log": transaction_log_decoder,
                "cluster-metadata": cluster_metadata_decoder,
                "remote-log-metadata": remote_log_metadata_decoder,
                "share-group-state": share_group_state_decoder,
            }
        ),
        key_decoder=key_decoder_class,
        value_decoder=value_decoder_class,
        max_bytes=max_bytes,
        max_message_size=SIZE_MAX if max_message_size is None else max_message_size,
        range=DumpRange(Bound.parse(from_, "--from"), Bound.parse(to, "--to")),
    )
    decoder_for(options.decoder, options.key_decoder, options.value_decoder)  # reports a wrong class at once
    return _dump_all(names, options, key_values("--remote-option", remote_option))


def _dump_all(names: list[str], options: DumpOptions, store_options: dict[str, str]) -> int:
    problems = Problems()
    with ExitStack() as stack:
        sources: list[DumpSource] = [  # all of them first: a wrong name is reported before anything is printed
            stack.enter_context(opened(name, store_options)) for name in names
        ]
        output = (JsonOutput if options.json else TextOutput)(stack.enter_context(buffered_stdout()), options)
        for source in sources:
            dump_file(source, output, problems)
            problems.flush(output)
    return 2 if problems.unknown_files else 1 if problems.found else 0


def _one_decoder(asked: dict[str, bool]) -> str | None:
    chosen = [name for name, is_chosen in asked.items() if is_chosen]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0]}-decoder and --{chosen[1]}-decoder cannot both be given")
    return chosen[0] if chosen else None
