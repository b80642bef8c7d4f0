"""The documentation as a site: `make docs` has Sphinx build it from Markdown and docstrings.

The Markdown of this repository is written for those who read it where it lies, and stays free of
Sphinx's own directives. A build copies it into a folder below `target/docs/`, and adds what only a
site has:

- `structure` says which page stands where. It is the only list of pages: a page that is missing
  there, or there twice, fails the build.
- `stage` copies pages, and has their links lead to pages of the site.
- `python_pages`, `c_pages` and `cli_pages` write the reference, of docstrings, headers and help.
- `gallery` runs the scripts in `docs/gallery/`, and shows the pictures that they make.
- `drawings` sets the drawings of concepts into their pages, so that they take the page's colours.

*Invariant*: a build changes nothing outside of its folder, and warns of nothing: each warning of
Sphinx is an error.
"""
