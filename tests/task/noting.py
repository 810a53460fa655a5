"""Wrappers that note down what happens, for the tests of middlewares and hooks."""

from __future__ import annotations


def noting(name):
    """Return a wrapper that notes down its name."""

    def wrap(task):
        task.note(f"{name} opens")
        yield
        task.note(f"{name} closes")

    return wrap


def nested(*names):
    """Return the events of the wrappers *names*, the first one outermost."""
    opening = [f"{name} opens" for name in names]
    return [*opening, "work", *(f"{name} closes" for name in reversed(names))]
