"""
Workflows and chains as mermaid, SVG and HTML.

``timeline``: the rows, bars and lanes of a chain, without pixels  ←
``svg``: the timeline as an SVG document
``html``: the SVG and a table in one HTML file without external parts
``mermaid``: the steps of a workflow, or the results of a chain, as a flowchart

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
