"""
A world in which one seed is one history.

Actors are greenlets, and one runs at a time. Each call of the store, each sleep and
each pause inside ``work`` is a point: there the world decides, by its seed, who goes
on, how much time passes, which process is killed, and whether the store can be reached.
The code under test is the real one; only its time and its store are replaced.
"""

from __future__ import annotations

import random
from contextlib import suppress

from greenlet import getcurrent, greenlet

from cmdx import clock
from cmdx.stores import SqliteStore, StoreUnavailable

START = 1_000_000.0


class Killed(BaseException):
    """The process of this actor was killed: nothing of it runs any more."""


class WorldClock(clock.Clock):
    """The time of a world; sleeping is a point."""

    def __init__(self, world):
        self.world = world

    def time(self):
        return self.world.now + self.world.skew

    def monotonic(self):
        return self.world.now

    def sleep(self, seconds):
        self.world.point(seconds)

    def random(self):
        return self.world.random.random()


class Process:
    """A group of actors that are killed together."""

    def __init__(self, world, name):
        self.world = world
        self.name = name
        self.is_dead = False

    def start(self, function):
        """Run *function* as an actor of this process."""

        def act():
            clock.current.set(self.world.clock)
            with suppress(Killed):
                function()

        actor = greenlet(act, self.world.hub)
        actor.process = self
        actor.due = 0.0
        self.world.actors.append(actor)
        return actor


class World:
    """Runs actors one at a time until none is left."""

    def __init__(
        self, seed, *, kills=0.03, jumps=0.03, outages=0.02, longest_jump=40.0
    ):
        self.random = random.Random(seed)
        self.kills, self.jumps, self.outages = kills, jumps, outages
        self.longest_jump = longest_jump
        self.now = START
        self.skew = 0.0
        """How far the clock of the wall is ahead of the time that has passed."""
        self.clock = WorldClock(self)
        self.hub = getcurrent()
        self.actors = []
        self.points = 0
        self.killed = 0

    def point(self, seconds=0.0):
        """Let others go on, for at least *seconds*."""
        actor = getcurrent()
        self.points += 1
        actor.due = self.now + seconds
        self.hub.switch()
        if actor.process.is_dead:
            raise Killed

    def run(self):
        while living := [actor for actor in self.actors if not actor.dead]:
            ready = [actor for actor in living if actor.due <= self.now]
            if not ready:
                self.now = min(actor.due for actor in living)
                continue
            actor = self.random.choice(ready)
            self.disturb(actor)
            actor.switch()

    def disturb(self, actor):
        """Let time jump, or kill the process of *actor*, now and then."""
        if self.random.random() < self.jumps:
            self.now += self.random.random() * self.longest_jump
        if self.random.random() < self.jumps / 10:
            self.skew -= 3600.0  # somebody has set the clock back
        if self.random.random() < self.kills and not actor.process.is_dead:
            actor.process.is_dead = True
            self.killed += 1


class WorldStore:
    """A real store whose every call is two points: it may die before and after."""

    name = "world"

    def __init__(self, world, store):
        self.world = world
        self.real = store
        self.commits = 0
        self.companions = {}

    def transact(self, unit, *, sync=False, relaxed=False, read_only=False):
        del sync, relaxed, read_only
        self.world.point()
        self.fail_sometimes()
        value = self.real.transact(unit)
        self.commits += 1
        self.world.point()
        self.fail_sometimes()  # it has happened, and nobody is told
        return value

    def fail_sometimes(self):
        if self.world.random.random() < self.world.outages / 2:
            raise StoreUnavailable("the store cannot be reached", "Try again")

    def version(self):
        return self.commits

    def wait(self, timeout, since=None):
        """Wait until a commit, or until *timeout* is over."""
        began = self.world.now
        while self.world.now - began < timeout:
            if since is not None and self.commits != since:
                return True
            self.world.point(min(timeout, 0.5))
        return False

    def now(self):
        return self.world.clock.time()


def new_store():
    """Return a real store in memory that many histories share."""
    return SqliteStore(":memory:")
