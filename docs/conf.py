"""How the docs are built: ``sphinx-build -W -b html docs docs/_build``."""

from importlib.metadata import version as installed_version

project = "cmdx"
author = "the cmdx authors"
copyright = f"2026, {author}"  # noqa: A001 -- the name Sphinx reads
version = release = installed_version("pycmdx")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
templates_path: list[str] = []

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"

html_theme = "furo"
html_title = f"cmdx {release}"
html_static_path = ["_static"]
