"""How Sphinx builds the site; `docsite` says of what."""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

_cargo = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
project = "Engram"
author = "the Engram contributors"
copyright = "the Engram contributors, Apache-2.0"  # noqa: A001 - Sphinx's name for it
release = version = _cargo["workspace"]["package"]["version"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "breathe",
    "sphinx_copybutton",
    "docsite.drawings",
    "docsite.names",
]
nitpicky = True
# Types of other projects, and what annotations spell out, have no page here.
nitpick_ignore_regex = [("py:(class|obj|data|exc)", ".*"), ("(c|cpp):.*", ".*")]
# A short name in an annotation may be one of several classes; all of them are listed. Each header
# of C++ opens its namespace again.
suppress_warnings = ["ref.python", "duplicate_declaration.cpp"]
default_role = "name"
highlight_language = "text"

myst_enable_extensions = ["attrs_block", "colon_fence"]
myst_heading_anchors = 5
myst_links_external_new_tab = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 80
python_display_short_literal_types = True
add_module_names = False
napoleon_numpy_docstring = True
napoleon_google_docstring = False
napoleon_use_rtype = False

breathe_default_project = "engram"
breathe_domain_by_extension = {"h": "c", "hpp": "cpp"}
c_maximum_signature_line_length = cpp_maximum_signature_line_length = 90

html_theme = "furo"
html_title = f"Engram {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"sidebar_hide_name": False, "navigation_with_keys": True}
copybutton_selector = "div.highlight-python pre, div.highlight-sh pre, div.highlight-cpp pre"
linkcheck_timeout = 20
