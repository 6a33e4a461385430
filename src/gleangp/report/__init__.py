"""A report of a fitted model: one HTML file that opens anywhere, without a network.

`facts` measures, `charts` draws (SVG with tooltips), `page` writes the HTML. Everything that comes from the
data is escaped.
"""

from gleangp.report.page import write

__all__ = ["write"]
