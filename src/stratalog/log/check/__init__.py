"""Offline checks of log directories: what is wrong, where, and what can be made anew. No terminal, no broker.

    findings = check_log_dirs([Path("data")])        # `log_dirs`; or `partition.check_partition` for one directory
    for action in plan(findings): action.carry_out() # `repair`

Nothing is written by a check. Everything is read once, in windows, several segments at a time.
"""
