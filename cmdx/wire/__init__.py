"""
Invocations and results as JSON.

An invocation is a value: it can be stored, sent to another process, and run there. Only
JSON is used, never pickle. An input that would not come back the same is refused when
it is dumped; a result is never refused.

The story is in ``invocations``. It rests on these, which are read from top to bottom:

1. ``encoding``, ``decoding``   any value as JSON, and back
2. ``codecs``                   the same by an annotation, with a trial whether it fits
3. ``names``                    what a task is called, and the class of a name
4. ``layout``                   what stored data looks like
5. ``invocations``              a task with its inputs
6. ``values``, ``outcomes``     what a task returned, and how its run ended
7. ``results``                  everything about its run
8. ``sending``                  what queues and engines check before they send one
9. ``traces``                   the trace that an invocation takes along
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
