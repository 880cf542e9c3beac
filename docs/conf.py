"""How the documentation is built: `sphinx-build -W docs docs/_build`."""

import os
import re
import subprocess
import sys
from importlib import metadata
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import superdex

project = "superdex"
author = "The superdex authors"
project_copyright = "the superdex authors"
try:
    release = metadata.version("superdex-vector")
except metadata.PackageNotFoundError:  # a checkout that is not installed
    release = superdex.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_parser", "sphinx_copybutton"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"superdex {release}"
html_static_path = ["_static"]
html_css_files = ["wrap.css"]
html_copy_source = False
html_show_sphinx = False

# Docstrings are Google style; what stands in single backticks is code, linked where it can be.
default_role = "py:obj"
napoleon_use_ivar = True
# Needed by one module only, which is documented without it.
autodoc_mock_imports = ["pettingzoo"]
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"

# Copy the code of interactive sessions without prompts and results.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

_NAMED_TUPLE_FIELD = "_tuplegetter"


class CommandHelp(SphinxDirective):
    """Shows what `superdex … --help` prints, so that it can't get out of date."""

    has_content = False
    optional_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[dict[str, Any]] = {"width": directives.positive_int}

    def run(self) -> list[nodes.Node]:
        """Run the command and return its output as a block of text."""
        commands = self.arguments[0].split() if self.arguments else []
        width = self.options.get("width", 90)
        done = subprocess.run(
            [sys.executable, "-m", "superdex.bench.cli", *commands, "--help"],
            env={**os.environ, "COLUMNS": str(width), "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        shown = " ".join(["$ superdex", *commands, "--help"])
        block = nodes.literal_block("", f"{shown}\n{done.stdout.rstrip()}")
        block["language"] = "text"
        return [block]


def to_restructured_text(
    _app: Sphinx, kind: str, _name: str, _value: object, _options: object, lines: list[str]
) -> None:
    """Write what docstrings take from Markdown as reStructuredText wants it, outside of examples.

    A star of a shape such as (…, *shape) is no emphasis, and code may have an ending: `Box`es. In
    the first line of a property, what stands before a colon is no type.
    """
    if kind == "property" and lines:
        lines[0] = lines[0].replace(": ", " – ", 1)
    for number, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            line = re.sub(r"(?<=[ (])\*(?=\w)(?![^`]*`[^`]*$)", r"\\*", line)
            lines[number] = re.sub(r"(`[^`]+`)(?=[a-z])", r"\1\\ ", line)


def skip_tuple_fields(
    _app: Sphinx,
    _kind: str,
    _name: str,
    value: object,
    skip: bool,  # noqa: FBT001 - Sphinx gives it by position
    _options: object,
) -> bool:
    """Leave the fields of named tuples to the class's docstring, which explains them."""
    return skip or type(value).__name__ == _NAMED_TUPLE_FIELD


def setup(app: Sphinx) -> None:
    """Register what is above."""
    app.add_directive("command-help", CommandHelp)
    app.connect("autodoc-process-docstring", to_restructured_text, priority=400)
    app.connect("autodoc-skip-member", skip_tuple_fields)
