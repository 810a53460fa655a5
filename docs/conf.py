"""How the docs are built: ``sphinx-build -W -b html docs docs/_build/html``."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, get_overloads

from docutils import nodes
from sphinx import addnodes
from sphinx.pycode import ModuleAnalyzer

if TYPE_CHECKING:
    from sphinx.application import Sphinx

    Tags = dict[str, tuple[str, int, int]]

sys.path.append(str(Path(__file__).parent))  # has the extension llms_txt

project = "cmdx"
author = "the cmdx maintainers"
copyright = f"2026, {author}"  # noqa: A001 -- the name Sphinx reads
version = release = installed_version("pycmdx")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "llms_txt",
]
exclude_patterns = ["_build"]
templates_path: list[str] = []

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
napoleon_use_param = False
napoleon_custom_sections = [("Class keywords", "params_style")]
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80

# What readers type is copied, without prompts; what is printed has no button.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"

html_theme = "furo"
html_title = f"cmdx {release}"
html_static_path = ["_static"]
html_css_files = ["docs.css"]
pygments_dark_style = "github-dark"


def setup(app: Sphinx) -> None:
    app.connect("viewcode-follow-imported", module_of)
    app.connect("viewcode-find-source", source_of)
    app.connect("doctree-read", rename_parameters)
    app.connect("autodoc-process-docstring", add_types_of_options, priority=400)


# -- signatures -------------------------------------------------------------------
# Sphinx writes ``~P`` for both of ``*args: P.args`` and ``**kwargs: P.kwargs``.


def rename_parameters(_app: Sphinx, doctree: nodes.document) -> None:
    for parameter in doctree.findall(addnodes.desc_parameter):
        for text in list(parameter.findall(nodes.Text)):
            if text == "~P":
                kind = parameter.astext().partition(":")[0].strip("*")
                text.parent.replace(text, nodes.Text(f"P.{kind}"))


# -- options ----------------------------------------------------------------------
# Of ``**options: Unpack[Options]`` a signature shows neither names nor types. The names
# are in the docstring; the types are added there, before napoleon reads it.


def add_types_of_options(
    _app: Sphinx,
    _what: str,
    _name: str,
    obj: object,
    _options: object,
    lines: list[str],
) -> None:
    types = types_of_options(obj)
    for number, line in enumerate(lines):
        found = re.match(r" +(\w+)(?=: )", line)
        if found and found[1] in types:
            lines[number] = f"{found[0]} (``{types[found[1]]}``){line[found.end() :]}"


def types_of_options(obj: object) -> dict[str, str]:
    """Return the types of what *obj*, or an overload of it, takes by ``Unpack``."""
    if isinstance(obj, type):
        obj = getattr(obj.__init_subclass__, "__func__", None)
    types: dict[str, str] = {}
    for form in (obj, *(get_overloads(obj) if inspect.isfunction(obj) else ())):
        for annotation in getattr(form, "__annotations__", {}).values():
            if found := re.fullmatch(r"Unpack\[(\w+)\]", str(annotation)):
                options = find_options(found[1])
                types |= {name: text_of(kind) for name, kind in options.items()}
    return types


def find_options(name: str) -> dict[str, object]:
    """Return the annotations of this class of options, which only checkers import."""
    modules = [module for key, module in sys.modules.items() if key.startswith("cmdx")]
    return next(
        vars(module)[name].__annotations__ for module in modules if name in vars(module)
    )


def text_of(annotation: object) -> str:
    return getattr(annotation, "__forward_arg__", None) or str(annotation)


# -- source links -----------------------------------------------------------------
# viewcode links to classes and functions. Public names are imported from where they
# are defined, and many are neither: signals, registries, callbacks.


def module_of(_app: Sphinx, module: str | None, name: str) -> str | None:
    """Return the module that *name* is imported from, or None to have it looked up."""
    if module is None:
        return None
    code = ModuleAnalyzer.for_module(module).code
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ClassDef) and node.name == name.partition(".")[0]:
            return module  # a method may be a function of another library
        if isinstance(node, ast.ImportFrom) and node.module != module:
            for alias in node.names:
                if alias.name == name and node.module.startswith("cmdx."):
                    return node.module
    return None


def source_of(_app: Sphinx, module: str) -> tuple[str, Tags] | None:
    """Return the code of *module*, and where in it each name is defined."""
    if module.partition(".")[0] != "cmdx":
        return None
    analyzer = ModuleAnalyzer.for_module(module)
    analyzer.analyze()
    tags = dict(analyzer.tags)
    for node in ast.parse(analyzer.code).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                tags[ast.unparse(target)] = ("other", node.lineno, node.end_lineno)
    return analyzer.code, tags
