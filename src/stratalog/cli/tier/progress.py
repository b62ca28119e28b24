"""A line on stderr while a bucket is being read, on a terminal only."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from stratalog.jobs.audit import AuditProgress


@dataclass(slots=True)
class _Counts:
    partitions: int = 0
    bytes: int = 0


@contextmanager
def audit_progress(title: str) -> Iterator[AuditProgress]:
    """Partitions done of all, and the bytes that were read."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield AuditProgress()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns: tuple[Any, ...] = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("partitions"),
        TextColumn("{task.fields[read]}"),
        TimeElapsedColumn(),
    )
    counts, lock = _Counts(), threading.Lock()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, read="")

        def on_bytes(count: int) -> None:
            with lock:
                counts.bytes += count
                bar.update(task, read=f"{size_text(counts.bytes)} read")

        yield AuditProgress(
            on_total=lambda total: bar.update(task, total=total),
            on_partition=lambda: bar.advance(task),
            on_bytes=on_bytes,
        )


def size_text(size: int) -> str:
    """Bytes for people: 3 significant digits and a binary unit."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{size} B" if unit == "B" else f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
