"""Tasks that fail by a script, in a module that workers of other processes import."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from cmdx import Task, Workflow, after_execution, retry_on
from cmdx.engines import current_message
from cmdx.guidance import Guidance

JOURNAL = "CMDX_TEST_JOURNAL"
"""The variable that says where tasks note what they do, in whatever process."""


def note(event, name):
    """Note what a task does, in one piece."""
    with Path(os.environ[JOURNAL]).open("ab", buffering=0) as file:
        file.write(f"{event} {name}\n".encode())


def read_notes():
    """Return what tasks have noted, in order."""
    return Path(os.environ[JOURNAL]).read_text().splitlines()


def count_notes(event, name):
    """Return how often a task has done something."""
    return read_notes().count(f"{event} {name}")


class Unavailable(Exception):
    """What a server says, with how long to wait."""

    def __init__(self, seconds):
        super().__init__(f"try again in {seconds} s")
        self.guidance = Guidance(allowed=True, after=seconds)


def new_error(word):
    """Return the error that a word of a script stands for."""
    errors = {
        "connection": ConnectionError("no answer"),
        "timeout": TimeoutError("too late"),
        "key": KeyError("price"),
        "guided": Unavailable(0.07),
        "minutes": Unavailable(300),
    }
    return errors[word]


class Scripted(Task[str]):
    """Fails as its script says, and then succeeds."""

    name: str
    script: list[str]

    def work(self) -> str:
        self.play()
        return f"{self.name} is done"

    def play(self) -> None:
        note("called", self.name)
        if self.attempt < len(self.script):
            raise new_error(self.script[self.attempt])

    @after_execution
    def note_end(self) -> None:
        note("ended", self.name)


@retry_on(ConnectionError, limit=2, delay=0.06, rule="net")
class Steady(Scripted):
    """Waits for the same time each time."""


@retry_on(TimeoutError, limit=1, delay=0.01, rule="slow")
@retry_on(ConnectionError, limit=2, delay=0.06, jitter="exponential", rule="net")
class Growing(Scripted):
    """Has two rules, and waits longer each time."""


@retry_on(Unavailable, limit=2, delay=0.01, guided=True, rule="told")
class Guided(Scripted):
    """Waits as long as it is told."""


@retry_on(ConnectionError, limit=5, delay=0.06, if_=lambda _task, _error, n: n < 1)
class Gated(Scripted):
    """Is retried once, because of its gate."""


def grow_fast(attempt: int, delay: float, _previous: float) -> float:
    return delay * 1000**attempt


@retry_on(ConnectionError, limit=5, delay=0.06, jitter=grow_fast, deadline=50)
class Hurried(Scripted):
    """Has no time for a second retry."""


class AwaitedSteady(Steady):
    """The same, but asynchronous."""

    async def work(self) -> str:
        await asyncio.sleep(0)
        self.play()
        return f"{self.name} was awaited"


class Halts(Scripted):
    """Fails on purpose."""

    def work(self) -> str:
        self.play()
        self.fail("card declined", code="declined")


class Skips(Scripted):
    """Has nothing to do."""

    def work(self) -> str:
        self.play()
        self.skip("nothing to do")


class Order(Workflow[Any]):
    """Its steps are retried, not the workflow."""

    name: str
    script: list[str]
    steps = (Steady, Halts)


@retry_on(ConnectionError, limit=1, delay=0.06)
class Inside(Task[dict[str, Any]], correlation_id=lambda: "request-7"):
    """Says what it knows of its message, after a pause."""

    def work(self) -> dict[str, Any]:
        if self.attempt == 0:
            raise ConnectionError
        message = current_message()
        return {"id": message.id, "cid": message.cid, "xid": message.xid}


class Stamp(Task[float]):
    """Returns when it was run."""

    def work(self) -> float:
        return time.time()


class Echo(Task[dict[str, Any]]):
    """Returns what it is given, and fails with it if it is told to."""

    data: dict[str, Any]
    wraps: bool = False
    fails: bool = False

    def work(self) -> dict[str, Any]:
        data = (
            {"__type__": "money", "__value__": self.data} if self.wraps else self.data
        )
        if self.fails:
            self.fail("no", data=data)
        return data


class Exits(Task[None]):
    """Exits, as a program does that has had enough."""

    name: str

    def work(self) -> None:
        note("called", self.name)
        raise SystemExit(3)

    def rollback(self) -> None:
        note("rolled back", self.name)


class AwaitedHang(Task[None]):
    """Works for longer than anybody waits, and takes some time to be rolled back."""

    name: str

    async def work(self) -> None:
        note("called", self.name)
        await asyncio.sleep(1_000)

    async def rollback(self) -> None:
        await asyncio.sleep(1.2)
        note("rolled back", self.name)


class Hang(Task[None]):
    """Works for longer than anybody waits."""

    name: str

    def work(self) -> None:
        note("called", self.name)
        for _ in range(1_000):
            time.sleep(0.01)

    def rollback(self) -> None:
        note("rolled back", self.name)


class Dies(Task[str]):
    """Kills its process, and succeeds when it is run again."""

    name: str

    def work(self) -> str:
        note("called", self.name)
        if count_notes("called", self.name) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{self.name} is done"


TASKS = (
    Steady, Growing, Guided, Gated, Hurried, AwaitedSteady, Halts, Skips, Order, Inside,
    Stamp, Echo, Exits, Hang, Dies,
)  # fmt: skip
