from .queries import WITH_OFFSETS as WITH_OFFSETS, GroupSummary as GroupSummary, list_groups as list_groups
