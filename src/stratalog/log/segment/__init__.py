"""One segment and the ordered set of them: what may be asked, what may be done."""
