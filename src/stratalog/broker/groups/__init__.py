"""Consumer groups: a pure state machine for the classic protocol, the offsets they commit, and the log of both."""
