"""
Failed results as HTTP answers, for any web framework.

``problems``: problem details by RFC 9457, from a result  ←

No web framework is imported here.
"""

from __future__ import annotations

from cmdx.web.problems import Problem, problem, statuses

__all__ = ["Problem", "problem", "statuses"]
