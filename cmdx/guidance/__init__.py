"""
What a server says about retrying.

``guidance``: the ``Guidance`` value, and what it permits  ←
``codes``: the guidance for each error code
``failures``: what a failed result and its origins say about the failure
``protocol``: reading requests and responses of the Forrst protocol
``parse``: guidance from errors, results, HTTP responses and Forrst responses
``server``: guidance for the callers of a server
``client``: a call that follows the guidance of a server

Only ``client`` sleeps and sends. Values that cannot be read are ignored.
"""

from __future__ import annotations

from cmdx.guidance.client import FailedCall, acall_with_guidance, call_with_guidance
from cmdx.guidance.codes import causes, codes, statuses
from cmdx.guidance.guidance import LONGEST_WAIT, Guidance, Strategy, Unit
from cmdx.guidance.parse import guidance_in, guidance_of
from cmdx.guidance.server import (
    code_for,
    guidance_for,
    respond,
    to_http,
    with_guidance,
)

__all__ = [
    "LONGEST_WAIT",
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
