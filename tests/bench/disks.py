"""
Disks that are slower than that of this machine.

Databases write what must survive a power cut through to the disk. How long that takes
decides how many jobs per second can be stored one after the other: here a few dozen
microseconds, on many servers some milliseconds.

- SQLite runs in this process: each sync of a file waits first, by a library that is
  loaded before all others. That takes Linux and a C compiler.
- PostgreSQL is a server: each commit waits first, by its setting ``commit_delay``,
  which only a superuser may change.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

SECONDS = "CMDX_BENCH_SYNC_TAKES"
"""The variable of the environment that says how long a sync waits."""

SLOW_SYNCS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

static int sync_later(const char *name, int file) {
    usleep(MICROSECONDS);
    return ((int (*)(int)) dlsym(RTLD_NEXT, name))(file);
}
int fsync(int file) { return sync_later("fsync", file); }
int fdatasync(int file) { return sync_later("fdatasync", file); }
"""


def seconds_per_sync():
    """Return how long each sync waits in this process; 0 as a rule."""
    return float(os.environ.get(SECONDS, "0"))


def run_again(seconds):
    """Run this very command once more, with a slow disk; return its exit code."""
    with TemporaryDirectory() as folder:
        library = Path(folder, "slow_syncs.so")
        compile_library(library, MICROSECONDS=round(seconds * 1e6))
        slow = {SECONDS: str(seconds), "LD_PRELOAD": str(library)}
        command = [sys.executable, *sys.argv]
        run = subprocess.run(command, check=False, env={**os.environ, **slow})
        return run.returncode


def compile_library(path, **macros):
    """Compile what makes syncs slow."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise SystemExit("a slow disk needs a C compiler. Install gcc, for example.")
    defined = [f"-D{name}={value}" for name, value in macros.items()]
    subprocess.run(
        [compiler, "-shared", "-fPIC", *defined, "-o", path, "-x", "c", "-"],
        input=SLOW_SYNCS,
        text=True,
        check=True,
    )


def postgres_settings():
    """Return the settings of connections to PostgreSQL, as its option ``-c``."""
    seconds = seconds_per_sync()
    if not seconds:
        return ""
    return f" -ccommit_delay={seconds * 1e6:.0f} -ccommit_siblings=0"
