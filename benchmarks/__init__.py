"""Measurements, each against a peer in the same run: `python -m benchmarks.NAME`. See docs/explanation/benchmarks.md.

A benchmark that is ended by SIGTERM leaves as one that is interrupted does: what it started, servers above all, is
stopped.
"""

from __future__ import annotations

import signal
import sys
import threading

if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
