"""Every page and every change of the console, by path."""

from __future__ import annotations

from typing import Final

from stratalog.web import answers
from stratalog.web.declarations import Page, PageChange
from stratalog.web.pages import (
    broker,
    groups,
    managing,
    one_topic,
    overview,
    producing,
    records,
    retention,
    security,
    segments,
    tier,
    topics,
)

_ONE: Final = "/topics/{topic}/partitions/{partition}"

PAGES: Final = (
    Page("/", "overview", "What needs attention, rates, tiers and disks.", overview.view, answers.OverviewAnswer),
    Page("/topics", "topics", "Topics, searched, sorted and paged.", topics.view, answers.TopicsAnswer, topics.FIELDS),
    Page(
        "/topics/{topic}",
        "partitions",
        "The partitions of a topic.",
        one_topic.partitions,
        answers.PartitionsAnswer,
        one_topic.PARTITIONS_FIELDS,
    ),
    Page(
        "/topics/{topic}/settings",
        "settings",
        "The settings of a topic.",
        one_topic.settings,
        answers.SettingsAnswer,
        one_topic.SETTINGS_FIELDS,
    ),
    Page(
        "/topics/{topic}/consumers",
        "consumers",
        "The groups that read a topic.",
        one_topic.consumers,
        answers.ConsumersAnswer,
    ),
    Page(
        "/topics/{topic}/messages",
        "messages",
        "Records of a topic, filtered, live.",
        records.messages,
        answers.MessagesAnswer,
        records.MESSAGES_FIELDS,
    ),
    Page("/topics/{topic}/produce", "produce", "Produce a record.", one_topic.head, answers.OneTopicAnswer),
    Page(
        "/topics/{topic}/retention",
        "retention",
        "When segments go, and what other settings change.",
        retention.view,
        answers.RetentionAnswer,
        retention.FIELDS,
    ),
    Page(_ONE, "segments", "The segment map of a partition.", segments.view, answers.SegmentsAnswer, segments.FIELDS),
    Page(
        f"{_ONE}/batches",
        "batches",
        "Batches of a partition.",
        records.batches,
        answers.BatchesAnswer,
        records.BATCHES_FIELDS,
    ),
    Page(
        f"{_ONE}/records",
        "records",
        "Records of a partition, decoded.",
        records.records,
        answers.RecordsAnswer,
        records.RECORDS_FIELDS,
    ),
    Page("/groups", "groups", "Consumer groups with their lag.", groups.view, answers.GroupsAnswer, groups.FIELDS),
    Page(
        "/group", "group", "One group: members and offsets.", groups.group, answers.OneGroupAnswer, groups.GROUP_FIELDS
    ),
    Page(
        "/tier",
        "tier",
        "The remote tier: backlogs, cache, quotas, failures.",
        tier.view,
        answers.TierAnswer,
        tier.FIELDS,
    ),
    Page("/cluster", "cluster", "Brokers, controllers and settings.", broker.cluster, answers.ClusterStateAnswer),
    Page(
        "/security",
        "security",
        "Users, access rules and quotas.",
        security.view,
        answers.SecurityAnswer,
        security.FIELDS,
    ),
    Page(
        "/events",
        "events",
        "Noteworthy events of the broker.",
        broker.events,
        answers.EventsAnswer,
        broker.EVENTS_FIELDS,
    ),
)

ACTIONS: Final = (
    PageChange(
        "/topics/{topic}/settings",
        "settings",
        "Change one setting of a topic.",
        one_topic.change,
        one_topic.CHANGE_FIELDS,
    ),
    PageChange("/topics", "topics", "Create a topic.", managing.create_topic, managing.CREATE_FIELDS),
    PageChange("/topics/{topic}/delete", "settings", "Delete a topic.", managing.delete_topic, managing.DELETE_FIELDS),
    PageChange("/group/offsets", "group", "Set where a group goes on.", managing.reset_offsets, managing.RESET_FIELDS),
    PageChange("/topics/{topic}/produce", "produce", "Append one record.", producing.produce, producing.FIELDS),
    PageChange(
        "/security/users", "security", "Set or remove a user's credential.", security.change_user, security.USER_FIELDS
    ),
    PageChange("/security/acls", "security", "Add or remove an access rule.", security.change_acl, security.ACL_FIELDS),
    PageChange(
        "/security/quotas",
        "security",
        "Set or remove a limit of clients.",
        security.change_quota,
        security.QUOTA_FIELDS,
    ),
)
