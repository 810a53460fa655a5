"""
What happened, written down so that it survives ``kill -9``.

All processes of a round append to one file. A line is one ``os.write``, and its length
divides that of a page: a process that is killed has written all of it or nothing.

=========  =========================================================================
asked      a caller is about to call ``session.run``
effect     an execution of ``work`` has taken effect, with a token of its own
told       a caller was told an answer; calls are ordered by ``began`` and ``ended``
row        the table of the user has a row, which is the effect of ``within=``
broke      a caller got an exception instead of a result
=========  =========================================================================
"""

from __future__ import annotations

import json
import os
import time

LENGTH = 256
"""Bytes of a line."""


class Journal:
    """The file, opened by one process."""

    def __init__(self, path, who):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self.descriptor = os.open(path, flags, 0o600)
        self.who = who

    def write(self, what, key, **facts):
        line = json.dumps({"what": what, "who": self.who, "key": key, **facts})
        if len(line) >= LENGTH:
            raise ValueError(f"a line of the journal is too long: {line}")
        os.write(self.descriptor, line.ljust(LENGTH - 1).encode() + b"\n")


def read_journal(path):
    """Return all lines, in order."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def moment():
    """Return a moment that can be compared between processes."""
    return time.monotonic_ns()
