"""From a directory to a log: what a crash or damage left is put right."""
