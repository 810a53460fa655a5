"""
Five blinker signals that tell what becomes of operations.

===========================  ==================================================
``operation_admitted``       ``task, operation``
``operation_sealed``         ``task, operation, result``
``operation_released``       ``task, operation``: it ended without an outcome
``operation_replayed``       ``task, operation, result``
``operation_indeterminate``  ``task, operation``: nobody knows how it ended
===========================  ==================================================

The sender is the class of the task. They are sent in the process where it happens,
after it is stored.
"""

from __future__ import annotations

from blinker import NamedSignal

operation_admitted = NamedSignal("operation_admitted")
operation_sealed = NamedSignal("operation_sealed")
operation_released = NamedSignal("operation_released")
operation_replayed = NamedSignal("operation_replayed")
operation_indeterminate = NamedSignal("operation_indeterminate")
