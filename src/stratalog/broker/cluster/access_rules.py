"""Apply the access rules of the metadata log: the rules that each image adds to an authorizer and removes from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from uuid import UUID

from stratalog.broker.access import Acl, acl_of_message
from stratalog.wire.metadata_records import AccessControlEntryRecord


def acl_of_record(record: AccessControlEntryRecord) -> Acl:
    return acl_of_message(record, record)


class EnforcedRules:
    """The rules of an authorizer.

    The log may contain a rule twice, under two ids: it is in force until both are removed. Only differences are
    processed, so the cost of a change does not depend on the number of rules.
    """

    def __init__(self) -> None:
        self._records: Mapping[UUID, AccessControlEntryRecord] = {}
        self._times: Counter[Acl] = Counter()
        #: In force before the first image; removed with it unless it contains them.
        self._unfounded: set[Acl] = set()

    def begin_with(self, rules: Iterable[Acl]) -> None:
        """Set the rules that the authorizer was created with."""
        self._unfounded = set(rules)

    def follow(self, records: Mapping[UUID, AccessControlEntryRecord]) -> tuple[list[Acl], list[Acl]]:
        """Return the rules to remove and to add for the next image."""
        gone: list[Acl] = []
        new: list[Acl] = []
        for each in records.keys() - self._records.keys():
            rule = acl_of_record(records[each])
            self._times[rule] += 1
            if self._times[rule] == 1:
                new.append(rule)
        for each in self._records.keys() - records.keys():
            rule = acl_of_record(self._records[each])
            self._times[rule] -= 1
            if not self._times[rule]:
                del self._times[rule]
                gone.append(rule)
        gone += [rule for rule in self._unfounded if rule not in self._times]
        self._unfounded = set()
        self._records = records
        return gone, new
