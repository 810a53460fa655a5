"""Several processes that send, and processes that are killed while they do."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from sender import courier_of
from workers import PATIENCE, new_store, wait_until

from cmdx.delivery import CourierState
from cmdx.queue import Queue
from cmdx.testing import Answer, Receiver

HERE = Path(__file__).parent

each_server = pytest.mark.parametrize("kind", ["file", "postgresql"])


class Install:
    """A courier without a worker of its own: processes send what it stores."""

    def __init__(self, store, hook, rate):
        self.address = getattr(store, "address", None) or store.name
        self.hook = hook
        self.rate = rate
        self.courier = courier_of(Queue(store), hook.url, rate or None)
        self.sent = []
        self.senders = []

    def send(self, *conversations):
        for conversation in conversations:
            event_type = ("paid", "left")[len(self.sent) % 2]
            number = len(self.sent)
            self.sent.append(
                self.courier.send(event_type, number, conversation=conversation)
            )

    def start(self):
        """Start a process that sends."""
        command = [sys.executable, HERE / "sender.py", self.address, self.hook.url]
        process = subprocess.Popen([*command, str(self.rate)])  # noqa: S603
        self.senders.append(process)
        return process

    def await_state(self, state):
        wait_until(lambda: self.courier.state == state)

    def await_all(self):
        """Wait until everything was sent."""
        for delivery in self.sent:
            assert delivery.wait(PATIENCE).state == "done"
        self.await_state("up")

    def check(self):
        """Everything has arrived, and each conversation in order."""
        got = [each.json for each in self.hook.received() if each.status == 200]
        firsts = list(dict.fromkeys(got))
        assert sorted(firsts) == list(range(len(self.sent)))
        for conversation in {delivery.conversation for delivery in self.sent}:
            numbers = [
                number
                for number in firsts
                if self.sent[number].conversation == conversation
                and not self.sent[number].out_of_order
            ]
            assert numbers == sorted(numbers)


@contextmanager
def new_install(kind, directory, rate=0.0):
    with new_store(kind, directory) as store, Receiver() as hook:
        install = Install(store, hook, rate)
        try:
            yield install
        finally:
            for process in install.senders:
                process.kill()
                process.wait()


def kill(process):
    process.kill()
    process.wait()


# -- several processes -----------------------------------------------------------------


@each_server
def test_several_processes_share_the_work_and_obey_one_state(kind, tmp_path):
    with new_install(kind, tmp_path) as install:
        install.send(*"abcdefgh" * 5)
        install.hook.script("/paid", [200] * 4 + [500] * 3)
        for _ in range(3):
            install.start()
        install.await_all()
        install.check()


@each_server
def test_while_the_install_has_failed_only_one_probe_goes_out_at_a_time(kind, tmp_path):
    with new_install(kind, tmp_path) as install:
        hook = install.hook
        hook.script("/paid", [500] * 8)
        install.send("a")
        for _ in range(3):
            install.start()
        install.await_state("failed")
        install.send(*"abcdef")
        install.await_all()
        install.check()
        assert [got.json for got in hook.received("/paid")][:9] == [0] * 9


# -- killed and started again ----------------------------------------------------------


@each_server
@pytest.mark.parametrize("state", CourierState)
def test_a_process_that_is_killed_loses_nothing_in_any_state(kind, tmp_path, state):
    rate = 0.0 if state == "up" else 4.0
    with new_install(kind, tmp_path, rate) as install:
        process = install.start()
        bring_into(install, state)
        kill(process)
        assert install.courier.state == state
        install.send(*"abc")
        install.hook.script("/paid", [])
        install.start()
        install.await_all()
        install.check()


def bring_into(install, state):
    """Have events be under way in a state."""
    hook = install.hook
    if state == "up":
        hook.script("/paid", [Answer(200, delay=3.0)] * 3)
        install.send(*"abab")
        hook.wait_for(1, "/paid")
        return
    hook.script("/paid", [500] * 10_000)
    install.send(*"ababab")
    install.await_state("failed")
    if state == "failed":
        return
    hook.script("/paid", [])
    install.await_state("in_transition")
    if state == "recovered":
        install.send(*"ab" * 4)
        install.await_state("recovered")


@each_server
def test_processes_that_are_killed_at_random_lose_nothing(kind, tmp_path):
    chance = random.Random(7)
    with new_install(kind, tmp_path) as install:
        for _ in range(4):
            statuses = [chance.choice([200, 200, 500]) for _ in range(20)]
            install.hook.script("/paid", statuses)
            install.send(*chance.choices("abcd", k=6))
            process = install.start()
            install.hook.wait_for(install.hook.count() + chance.randrange(1, 5))
            time.sleep(chance.random() / 20)
            kill(process)
        install.hook.script("/paid", [])
        install.start()
        install.await_all()
        install.check()
