from .queries import list_groups as list_groups
