"""Look up known vulnerabilities of what `uv.lock` pins: `python -m tools.audit_dependencies [--required] [ARGS]`.

ARGS go to `uv audit`, which asks the database of OSV for all packages at once. `--ignore ID` there leaves one out:
say beside it why it does not concern us. Exit codes: 0 none is known, or nothing was looked up and why is said on
stderr; 1 some are known, they are listed; 2 nothing was looked up, with `--required` or for a reason that is not the
network.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: What `uv` says when the database, or the way to it, does not answer.
_UNREACHED = ("error sending request", "Request failed", "timed out", "HTTP status")


def uv_program() -> str | None:
    """Return the uv of the set-up, else one on the path, else None."""
    return next((str(each) for each in ROOT.glob(".setup/uv-*/bin/uv")), None) or shutil.which("uv")


def audit(project: Path, arguments: Sequence[str], *, required: bool) -> int:
    """Print what is known about the locked packages of a project; return the exit code."""
    uv = uv_program()
    if uv is None:
        print("audit: there is no uv; run ./run-tests once, or pip install uv", file=sys.stderr)
        return 2
    command = [uv, "audit", "--frozen", "--preview-features", "audit-command", "--project", str(project), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout, end="")
    print(done.stderr, end="", file=sys.stderr)
    if done.returncode < 2 or required or not any(word in done.stderr for word in _UNREACHED):
        return done.returncode
    reason = " ".join(done.stderr.rpartition("cause: ")[2].split())  # uv breaks its lines to the width of a terminal
    print(
        "\n*** SKIPPED: known vulnerabilities were NOT looked up, the database does not answer ***\n"
        f"*** {reason} ***\n"
        "*** Run `python -m tools.audit_dependencies --required` where it does. ***",
        file=sys.stderr,
    )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Look up known vulnerabilities of what uv.lock pins.")
    parser.add_argument("--required", action="store_true", help="fail when the database does not answer")
    parser.add_argument("--project", type=Path, default=ROOT, help="the directory of the lock file")
    options, arguments = parser.parse_known_args()
    return audit(options.project, arguments, required=options.required)


if __name__ == "__main__":
    sys.exit(main())
