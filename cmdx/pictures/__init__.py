"""
Pictures of workflows and chains, as text that other programs draw.

``mermaid``: a workflow as it is written, or a chain as it was run
``timeline``: when everything in a chain happened, as plain values  ←
``svg``: the timeline as a drawing
``html``: the drawing and a table in one file that needs nothing else

A picture shows names, times, statuses and reasons. It never shows inputs, the context,
metadata or values.
"""

from __future__ import annotations

from cmdx.pictures.html import chain_html
from cmdx.pictures.mermaid import chain_mermaid, workflow_mermaid
from cmdx.pictures.svg import chain_notebook, chain_svg
from cmdx.pictures.timeline import timeline

__all__ = [
    "chain_html",
    "chain_mermaid",
    "chain_notebook",
    "chain_svg",
    "timeline",
    "workflow_mermaid",
]
