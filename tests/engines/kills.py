"""
Prove by ``kill -9`` that engines lose no message, and by restarts of their brokers.

Run it with ``python tests/engines/kills.py``. Messages whose task fails twice are sent,
and workers are killed while they handle them, one after the other; with ``--restart``,
the broker is restarted instead, which takes the rights to do so. The last worker
handles what is left. The exit status is 1 if a message is lost.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
import traceback
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from engine_tasks import JOURNAL, Steady, read_notes  # noqa: E402
from places import PLACES, new_place, silence  # noqa: E402

SAFE = [name for name in PLACES if name != "celery-redis"]
"""Celery takes a message out of Redis before it notes that, and can lose it."""
KILLS, MESSAGES = 6, 100
PATIENCE = 90.0
LONGEST_LIFE = 600
"""Seconds after which a process ends that hangs, so that nobody waits for it."""

OPTIONS = {
    "celery-rabbitmq": {},
    "celery-redis": {
        "broker_transport_options": {
            "visibility_timeout": 1,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
            "unacked_mutex_expire": 1,
        }
    },
    "dramatiq-rabbitmq": {},
    "dramatiq-redis": {"heartbeat_timeout": 500, "maintenance_chance": 1_000_000},
}
"""How soon another worker gets the messages of a dead one; Redis has to be told."""


class Child:
    """A process forked from this one, which has neither threads nor connections."""

    def __init__(self, function, *args):
        self.number = os.fork()
        if self.number == 0:
            run_and_exit(function, *args)
        with suppress(OSError):  # it has done so itself
            os.setpgid(self.number, self.number)

    def kill(self):
        os.killpg(self.number, signal.SIGKILL)  # Celery has another process
        self.wait()

    def wait(self):
        _, status = os.waitpid(self.number, 0)
        return os.waitstatus_to_exitcode(status)


def run_and_exit(function, *args):
    """Do what a child does; nothing of the parent's is cleaned up by it."""
    try:
        os.setpgid(0, 0)
        signal.alarm(LONGEST_LIFE)
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        silence()
        function(*args)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


class Scene:
    """A queue of an engine, and the messages that are sent to it."""

    def __init__(self, name, messages):
        self.name = name
        self.queue = f"cmdx_kills_{uuid4().hex}"
        self.messages = [f"message-{number}" for number in range(messages)]

    def place(self):
        return new_place(
            self.name, queue=self.queue, tasks=[Steady], **OPTIONS[self.name]
        )

    def send(self):
        place = self.place()
        for name in self.messages:
            place.engine.enqueue(Steady(name=name, script=["connection"] * 2))

    def work(self):
        self.place().work()

    def clean_up(self):
        self.place().close()

    def ended(self):
        """Return which messages are done."""
        words = (line.split() for line in read_notes())
        return {name for event, name in words if event == "ended"}


def wait_until(is_true, patience=PATIENCE):
    """Wait until something is true; tell whether it was in time."""
    end = time.monotonic() + patience
    while not is_true():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def kill_workers(scene, kills):
    """Kill workers, each as soon as it has handled some messages."""
    share = len(scene.messages) // (kills + 2)
    for number in range(1, kills + 1):
        worker = Child(scene.work)
        wait_until(lambda number=number: len(scene.ended()) >= number * share)
        worker.kill()


def restart_broker(scene, restart):
    """Restart the broker while a worker handles messages."""
    worker = Child(scene.work)
    wait_until(lambda: len(scene.ended()) >= len(scene.messages) // 4)
    restart()
    # A worker may not know of messages that it was sent just then: the next one gets
    # them, when it has ended.
    wait_until(lambda: len(scene.ended()) == len(scene.messages), PATIENCE / 4)
    worker.kill()


def run(name, messages, disturb, *given):
    """Send messages, disturb those that handle them, and return what was lost."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "journal")
        path.touch()
        os.environ[JOURNAL] = str(path)
        scene = Scene(name, messages)
        if Child(scene.send).wait():
            raise SystemExit("the messages could not be sent")
        disturb(scene, *given)
        worker = Child(scene.work)
        wait_until(lambda: len(scene.ended()) == messages)
        worker.kill()
        Child(scene.clean_up).wait()
        notes = read_notes()
        lost = set(scene.messages) - scene.ended()
        again = sum(line.startswith("ended") for line in notes) - len(scene.ended())
        called = sum(line.startswith("called") for line in notes)
        return lost, again, called


# -- brokers that are restarted -------------------------------------------------------


def restart_rabbitmq():
    for command in ("stop_app", "start_app"):
        words = ["rabbitmqctl", "-q", command]
        subprocess.run(words, check=True, timeout=PATIENCE)


class OwnRedis:
    """A Redis server that keeps what it was told, so that it can be restarted."""

    def __init__(self, folder):
        self.folder = folder
        self.port = 20_000 + os.getpid() % 10_000
        self.start()

    def start(self):
        options = {
            "port": self.port, "dir": self.folder, "save": "", "bind": "127.0.0.1",
            "appendonly": "yes", "appendfsync": "always", "logfile": "redis.log",
        }  # fmt: skip
        words = [
            word
            for name, value in options.items()
            for word in (f"--{name}", str(value))
        ]
        self.process = subprocess.Popen(["redis-server", *words])  # noqa: S607
        wait_until(self.answers)

    def answers(self):
        import socket

        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            return True
        return False

    def restart(self):
        self.stop()
        self.start()

    def stop(self):
        self.process.kill()
        self.process.wait()


@contextmanager
def own_redis():
    with TemporaryDirectory() as folder:
        server = OwnRedis(folder)
        os.environ["CMDX_TEST_REDIS"] = f"redis://127.0.0.1:{server.port}"
        try:
            yield server.restart
        finally:
            del os.environ["CMDX_TEST_REDIS"]
            server.stop()


def restarting(name):
    """Return a block that yields what restarts the broker of a place."""
    return own_redis() if name.endswith("redis") else nullcontext(restart_rabbitmq)


def main():
    parser = argparse.ArgumentParser(description="Kill workers of engines.")
    parser.add_argument("--only", choices=PLACES, help="this one, safe or not")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--restart", action="store_true", help="restart the broker")
    given = parser.parse_args()
    what = "restarts" if given.restart else "kills"
    print(f"| engine and broker | messages | {what} | calls | done again | lost |")
    print("|---|---:|---:|---:|---:|---:|")
    all_lost = set()
    for name in [given.only] if given.only else SAFE:
        if given.restart:
            with restarting(name) as restart:
                lost, again, called = run(name, given.messages, restart_broker, restart)
        else:
            lost, again, called = run(name, given.messages, kill_workers, given.kills)
        times = 1 if given.restart else given.kills
        numbers = (given.messages, times, called, again, len(lost))
        print(f"| {name} | {' | '.join(map(str, numbers))} |", flush=True)
        all_lost |= lost
    sys.exit(bool(all_lost))


if __name__ == "__main__":
    main()
