from .queries import WITH_COMMITS as WITH_COMMITS, GroupSummary as GroupSummary, list_groups as list_groups
