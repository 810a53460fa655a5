"""
Blinker signals that tell what becomes of events and couriers.

====================  ==============================================================
``delivery_sent``     ``delivery, status, duration``: an endpoint has accepted it
``delivery_failed``   ``delivery, status, duration, reason``: an attempt has failed
``delivery_dropped``  ``delivery, reason``: it is given up
``courier_changed``   ``old, new``: the state of a courier
====================  ==============================================================

The sender is the courier. They are sent after the commit, in the process where it
happens.
"""

from __future__ import annotations

from blinker import NamedSignal

delivery_sent = NamedSignal("delivery_sent")
delivery_failed = NamedSignal("delivery_failed")
delivery_dropped = NamedSignal("delivery_dropped")
courier_changed = NamedSignal("courier_changed")
