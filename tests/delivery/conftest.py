"""Fixtures of the tests of deliveries."""

from __future__ import annotations

from couriers import clock, hook, new_courier, queue, store

__all__ = ["clock", "hook", "new_courier", "queue", "store"]
