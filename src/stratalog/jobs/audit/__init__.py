"""The audit of a bucket: what is read, the rules, findings and their repair."""
