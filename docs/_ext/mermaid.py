"""Fenced `mermaid` blocks as diagrams, drawn in the reader's browser by the copy that we ship."""

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx


class Diagram(nodes.General, nodes.Element):
    pass


class Mermaid(Directive):
    has_content = True

    def run(self) -> list[nodes.Node]:
        return [Diagram(text="\n".join(self.content))]


def visit_html(self, node: Diagram) -> None:
    self.body.append(f'<pre class="mermaid">{self.encode(node["text"])}</pre>')
    raise nodes.SkipNode


def visit_text(self, node: Diagram) -> None:
    self.add_text(node["text"])
    raise nodes.SkipNode


def add_scripts(app: Sphinx, pagename, templatename, context, doctree) -> None:
    if doctree is not None and any(True for _ in doctree.findall(Diagram)):
        app.add_js_file("vendor/mermaid.min.js")
        app.add_js_file("diagrams.js")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(Diagram, html=(visit_html, None), text=(visit_text, None))
    app.add_directive("mermaid", Mermaid)
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
