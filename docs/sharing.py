"""Draws the picture of the README for light and dark pages: `python docs/sharing.py`."""

from pathlib import Path

import matplotlib.pyplot as plt

from gleangp.cli._demo import learn_and_transfer
from gleangp.cli._demo_picture import save_picture

if __name__ == "__main__":
    result = learn_and_transfer(seed=0)
    dark = {name: "#0d1117" for name in ("figure.facecolor", "axes.facecolor", "savefig.facecolor")}
    for name, style in (("sharing.png", "default"), ("sharing-dark.png", ["dark_background", dark])):
        with plt.style.context(style):
            save_picture(result, Path(__file__).parent / name)
