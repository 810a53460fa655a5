"""
Invocations and results as JSON.

An invocation is a value: it can be stored, sent to another process, and run there. Only
JSON is used, never pickle. What would not come back the same is refused when it is
dumped.
"""

from cmdx.wire.encoding import encodings
from cmdx.wire.errors import RefusedInputError, UnknownTaskError, WireError
from cmdx.wire.invocations import dump_invocation, fingerprint, load_invocation
from cmdx.wire.results import dump_result, load_result

__all__ = [
    "RefusedInputError",
    "UnknownTaskError",
    "WireError",
    "dump_invocation",
    "dump_result",
    "encodings",
    "fingerprint",
    "load_invocation",
    "load_result",
]
