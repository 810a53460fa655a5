"""
What the other side says about trying again.

``meaning``: a ``Guidance``, and what it means for the one who obeys it  ←
``codes``: what each error code means when nobody says more
``wire``: requests and responses taken apart
``reading``: guidance from errors, results, HTTP answers and responses
``answering``: as a server, guidance for whoever called
``calling``: as a client, a call that obeys

All but ``calling`` decide and do nothing. What cannot be read is ignored.
"""

from __future__ import annotations

from cmdx.guidance.answering import (
    code_for,
    guidance_for,
    respond,
    to_http,
    with_guidance,
)
from cmdx.guidance.calling import FailedCall, acall_with_guidance, call_with_guidance
from cmdx.guidance.codes import causes, codes, statuses
from cmdx.guidance.meaning import Guidance, Strategy, Unit
from cmdx.guidance.reading import guidance_in, guidance_of

__all__ = [
    "FailedCall",
    "Guidance",
    "Strategy",
    "Unit",
    "acall_with_guidance",
    "call_with_guidance",
    "causes",
    "code_for",
    "codes",
    "guidance_for",
    "guidance_in",
    "guidance_of",
    "respond",
    "statuses",
    "to_http",
    "with_guidance",
]
