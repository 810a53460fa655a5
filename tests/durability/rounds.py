"""
Random kills.

1. a process calls operations in threads and in an event loop    ``live``
2. it is killed after a few milliseconds, while another lives    ``kill_one``
3. the next one calls new operations, and those of its
   predecessors; for half of them all leases are over            ``choose_keys``
4. in the end a fresh process asks for every operation           ``answer_everything``

One seed makes the same choices. How far a process comes is up to the machine.
"""

from __future__ import annotations

import asyncio
import random
import signal
import threading
import time
from collections import deque
from functools import partial
from itertools import count

from .journal import read_journal
from .processes import LEAP, Child, Process

KILLS = 20
"""In one round."""
AT_ONCE = 2
"""How many processes live at the same time."""
THREADS = 2
COROUTINES = 2
LONGEST_LIFE = 0.015
"""Seconds until a process is killed, at most; counted from when it is its turn."""
LONGEST_WAIT = 0.005
"""Seconds that a caller waits for another one, which may be dead."""
LONGEST_WORK = 0.001
TRIES = 5


def run_round(scene, kills, seed):
    """Kill so many processes, then answer everything; return the journal."""
    chance = random.Random(seed)
    alive, ahead = deque(), 0.0
    try:
        for number in range(kills):
            ahead += chance.choice((0.0, LEAP))
            life = partial(live, scene, number, ahead, f"{seed}/{number}")
            alive.append(Child(life))
            if len(alive) == AT_ONCE:
                kill_one(scene, alive, chance)
    finally:
        while alive:
            kill_one(scene, alive, chance)
    ask_all(scene, ahead + 2 * LEAP)
    return read_journal(scene.journal)


def kill_one(scene, alive, chance):
    """Kill the oldest in the middle of its work, or the youngest while it begins."""
    seconds = chance.random() * LONGEST_LIFE
    if chance.random() < 0.1:
        victim = alive.pop()
    else:
        victim = alive.popleft()
        victim.await_begin()
    time.sleep(seconds)
    scene.expect(-signal.SIGKILL, victim.kill(), "a process that was to be killed")


# -- what a process does before it is killed -------------------------------------------


def live(scene, number, ahead, seed, begin):
    """Call operations until somebody kills this process."""
    process = Process(scene, number, ahead=ahead)
    process.at = partial(take_a_moment, random.Random(seed))
    names = [f"{seed}/{one}" for one in range(THREADS)]
    callers = [partial(call, process, name, process.new_connection()) for name in names]
    names = [f"{seed}/loop/{one}" for one in range(COROUTINES)]
    coroutines = [acall(process, name, process.new_connection()) for name in names]
    callers.append(partial(run_in_loop, coroutines))
    for caller in callers:
        threading.Thread(target=run_caller, args=(process, caller, begin)).start()
    while True:
        signal.pause()


def take_a_moment(chance, _point):
    """Let work last a little, so that it can be killed and waited for."""
    time.sleep(chance.random() * LONGEST_WORK)


def call(process, seed, connection):
    for key in choose_keys(process.journal.who, random.Random(seed)):
        process.ask(key, wait=LONGEST_WAIT, within=connection)


async def acall(process, seed, connection):
    for key in choose_keys(process.journal.who, random.Random(seed)):
        await process.aask(key, wait=LONGEST_WAIT, within=connection)


def run_in_loop(coroutines):
    async def run():
        await asyncio.gather(*coroutines)

    asyncio.run(run())


def choose_keys(number, chance):
    """Yield new keys, which others choose too, and keys of earlier processes."""
    for step in count():
        if number and chance.random() < 0.4:
            earlier = max(0, number - chance.randint(1, 4))
            yield f"{earlier}-{chance.randrange(8)}"
        else:
            yield f"{number}-{step + chance.randrange(3)}"


def run_caller(process, caller, begin):
    """Run a caller, and write down what it raises: that is never an answer."""
    begin()
    try:
        caller()
    except Exception as error:
        process.journal.write("broke", "", text=ascii(error)[:100])


# -- what is asked afterwards ----------------------------------------------------------


def ask_all(scene, ahead):
    """Have a fresh process ask for everything that was ever asked for."""
    lines = read_journal(scene.journal)
    keys = dict.fromkeys(line["key"] for line in lines if line["what"] == "asked")
    checker = Child(partial(answer_everything, scene, keys, ahead))
    scene.expect(0, checker.wait(), "the process that asks for everything")


def answer_everything(scene, keys, ahead, _begin):
    """Ask for all keys twice; then look into the table of the user."""
    process = Process(scene, "checker", ahead=ahead)
    connection = process.new_connection()
    for _ in range(2):
        for key in keys:
            ask_until_answered(process, key, connection)
    if connection is not None:
        process.note_rows(connection)


def ask_until_answered(process, key, connection):
    for _ in range(TRIES):
        if process.ask(key, within=connection) != "unavailable":
            return
