"""
Webhooks in order: events are sent to endpoints that may fail for seconds or days.

``Courier.send`` stores an event in a queue, and a worker of the queue sends it.
"""

from __future__ import annotations

from cmdx.delivery.courier import Courier
from cmdx.delivery.deliveries import Delivery, DeliveryAttempt
from cmdx.delivery.endpoints import Endpoint
from cmdx.delivery.errors import DeliveryError
from cmdx.delivery.machine import CourierState
from cmdx.delivery.signals import (
    courier_changed,
    delivery_dropped,
    delivery_failed,
    delivery_sent,
)
from cmdx.delivery.signing import new_secret, verify

__all__ = [
    "Courier",
    "CourierState",
    "Delivery",
    "DeliveryAttempt",
    "DeliveryError",
    "Endpoint",
    "courier_changed",
    "delivery_dropped",
    "delivery_failed",
    "delivery_sent",
    "new_secret",
    "verify",
]
