"""A model file behind a small local page: pick a task, move inputs, upload a table.

`answers` computes, `page` is the HTML, `server` speaks HTTP. The page draws with the charts of `report`.
"""

from gleangp.serve.server import make_server

__all__ = ["make_server"]
