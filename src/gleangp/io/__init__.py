"""Model files: one zip of JSON and `.npy`, nothing executable inside.

`files` reads and writes the zip, `classes` has what a file may contain and turns it into JSON and back,
`atomic` replaces files in one step.
"""

from gleangp.io.atomic import replacing
from gleangp.io.files import load, save

__all__ = ["load", "replacing", "save"]
