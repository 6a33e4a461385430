"""A report of a fitted model: one HTML file that opens anywhere, without a network.

`held_out`, `effects` and `single_tasks` measure, `facts` collects what they found, `charts` and `pieces`
draw, `quality`, `sections` and `page` write the HTML. Everything that comes from the data is escaped.
"""

from gleangp.report.held_out import HeldOutRows
from gleangp.report.page import write

__all__ = ["HeldOutRows", "write"]
