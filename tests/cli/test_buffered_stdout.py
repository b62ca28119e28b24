"""Standard output is written in blocks by commands that print very many lines."""

import subprocess
import sys

import pytest

PROGRAM = """
import os
from stratalog.cli.streams import buffered_stdout
with buffered_stdout() as stream:
    stream.write(b"first\\n")
    os.write(1, b"second\\n")
print("last")
"""


@pytest.mark.parametrize("options", [[], ["-u"]], ids=["buffered", "unbuffered"])
def test_lines_wait_until_the_block_ends(options: list[str]) -> None:
    done = subprocess.run([sys.executable, *options, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == ["first", "last", "second"]
    assert done.stdout.split()[0] == "second"


def test_a_reader_that_has_gone_is_an_error_of_the_caller() -> None:
    program = PROGRAM.replace('b"first', 'b"x" * 1_000_000 + b"first')
    with subprocess.Popen([sys.executable, "-u", "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.close()
        assert b"BrokenPipeError" in run.stderr.read()
