"""The data sets of the papers: `load_*` functions that return inputs, targets and tasks.

A file is looked for in the folder that the environment variable GLEANGP_DATA names, then in the cache
(GLEANGP_CACHE, or the platform's cache folder), and is downloaded last (extra `data`). What was downloaded
is checked before it is kept. No data comes with the package.
"""

from gleangp.datasets._many_tasks import (
    load_landmine,
    load_sarcos,
    load_school,
    load_slump,
    load_usps,
    load_vowels,
)
from gleangp.datasets._one_task import (
    load_auto_mpg,
    load_crescent,
    load_haberman,
    load_iris,
    load_kin40k,
    load_protein,
)
from gleangp.datasets._places import cache_folder

__all__ = [
    "cache_folder",
    "load_auto_mpg",
    "load_crescent",
    "load_haberman",
    "load_iris",
    "load_kin40k",
    "load_landmine",
    "load_protein",
    "load_sarcos",
    "load_school",
    "load_slump",
    "load_usps",
    "load_vowels",
]
