"""Changes of a member's subscription: its record, the group's regular expressions, and the preferred assignor.

Source: `hasMemberSubscriptionChanged`, `maybeUpdateRegularExpressions` and `hasPreferredServerAssignorChanged` of Kafka
4.4.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from stratalog.broker.groups.consumer.group import ConsumerGroup
from stratalog.broker.groups.consumer.regexes import check_regex
from stratalog.broker.groups.consumer.surroundings import Surroundings
from stratalog.broker.groups.consumer.target_update import MemberUpdate
from stratalog.broker.groups.consumer.values import ChangeKind, GroupChange, ResolvedRegex, member_change
from stratalog.broker.groups.modern import GroupEpoch

#: Minimum time between two matches of a group's regular expressions.
REGEX_PAUSE_MS = 10_000


class RegexChange(Enum):
    """The change of a member's regular expression; RESOLVED: its matches are known already."""

    NONE = auto()
    UPDATED = auto()
    RESOLVED = auto()


def topics_changed(update: MemberUpdate, changes: list[GroupChange]) -> bool:
    """Record a changed subscription; return whether its topic names have changed."""
    if update.new == update.old:
        return False
    changes.append(member_change(update.new))
    return update.new.subscription.topics != update.old.subscription.topics


def regex_changed(group: ConsumerGroup, update: MemberUpdate, changes: list[GroupChange]) -> RegexChange:
    """Record the removal of an unused regular expression; InvalidRegularExpressionError if the new one is invalid."""
    old, new = update.old.subscription.regex, update.new.subscription.regex
    if old == new:
        return RegexChange.NONE
    subscribers = group.subscriptions.regexes
    if old and subscribers[old] == 1:
        changes.append(GroupChange(ChangeKind.REGEX, old))
    if not new:
        return RegexChange.RESOLVED if old else RegexChange.UPDATED
    if not subscribers[new]:
        check_regex(new)
        return RegexChange.UPDATED
    return RegexChange.RESOLVED if new in group.resolved else RegexChange.UPDATED


def regexes_to_resolve(group: ConsumerGroup, update: MemberUpdate, around: Surroundings) -> frozenset[str]:
    """Return the regular expressions to match now, including that of the changed member.

    All of them if one is new, there are new topics, or the last match is long ago; none if it was very recent.
    """
    old, new = update.old.subscription.regex, update.new.subscription.regex
    subscribers = group.subscriptions.regexes
    is_new = bool(new) and new != old and not subscribers[new or ""]
    if group.is_resolving or not (is_new or subscribers):
        return frozenset()
    last_ms = next((each.timestamp_ms for each in group.resolved.values()), None)
    now_ms = around.now.wall_ms
    if last_ms is not None and now_ms <= last_ms + REGEX_PAUSE_MS:
        return frozenset()
    wanted = subscribers.copy()
    if old:
        wanted[old] -= 1
    if new:
        wanted[new] += 1
    regexes = frozenset([regex for regex, count in wanted.items() if count > 0])
    is_due = (
        is_new
        or len(regexes) != len(group.resolved)
        or group.resolved_at_version is None
        or group.resolved_at_version < around.topics.new_topics_version
        or last_ms is None
        or now_ms > last_ms + around.settings.regex_refresh_interval_ms
    )
    return regexes if is_due else frozenset()


def assignor_changed(group: ConsumerGroup, update: MemberUpdate, around: Surroundings) -> bool:
    default = around.settings.assignors[0]
    before = group.preferred_assignor(None, None, default)
    return before != group.preferred_assignor(update.old, update.new, default)


def resolved_changes(
    group: ConsumerGroup, resolved: Mapping[str, ResolvedRegex], around: Surroundings
) -> list[GroupChange]:
    """Return the changes after matching regular expressions: the epoch is incremented if their topics changed."""
    after = group.subscriptions.copy()
    changes: list[GroupChange] = []
    bump = False
    for regex, now in resolved.items():
        if not group.subscriptions.regexes[regex]:
            continue
        before = group.resolved.get(regex)
        if now.topics != (frozenset() if before is None else before.topics):
            bump = True
            after.count_resolved(before, -1)
            after.count_resolved(now, 1)
        changes.append(GroupChange(ChangeKind.REGEX, regex, now))
    metadata_hash = around.hashes.of_group(after.topics)
    if bump or metadata_hash != group.metadata.metadata_hash:
        changes.append(GroupChange(ChangeKind.GROUP, value=GroupEpoch(group.epoch + 1, metadata_hash)))
        group.seen_topics_version = around.topics.topics_version
    return changes
