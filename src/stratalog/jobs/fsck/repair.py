"""Turn findings into actions, each once, in an order in which none undoes another."""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.jobs.fsck.actions import FileAction
from stratalog.jobs.fsck.findings import FileFinding


def plan(findings: Iterable[FileFinding]) -> list[FileAction]:
    """Return what repair will do: one action for each file, logs first."""
    actions: dict[object, FileAction] = {}
    for finding in findings:
        action = finding.action
        if action is not None:
            actions.setdefault((action.order, action.path), action)
    return sorted(actions.values(), key=lambda action: (action.order, str(action.path)))
