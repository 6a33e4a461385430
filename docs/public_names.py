"""The names that the site documents: used by `conf.py`, and by the tests that look for gaps."""

from __future__ import annotations

import inspect

# Their own pages or sections; `__all__` of these modules is public too.
MODULES = ("datasets", "noise", "plots")
# Methods by which the parts of the library work together, not what users call.
INTERNAL = {
    "achieved",
    "check_tasks",
    "distances",
    "get_metadata_routing",
    "grad_of_shared",
    "is_labeled",
    "is_stationary",
    "log_mean",
    "log_sides",
    "parameters",
    "parts",
    "select",
    "start_runs",
    "terms",
    "typical_bias",
    "under",
    "with_variance",
}


def public_methods(value: type) -> list[str]:
    """Methods of a class that gleangp defines, in alphabetical order; scikit-learn documents the others."""
    return [
        name
        for name, method in inspect.getmembers(value, inspect.isroutine)
        if not name.startswith("_")
        and name not in INTERNAL
        and (getattr(method, "__module__", None) or "").startswith("gleangp")
    ]


def public_names() -> dict[str, object]:
    """Full name of every public function, class and method, and the object."""
    import gleangp

    homes = {"gleangp": gleangp} | {f"gleangp.{name}": getattr(gleangp, name) for name in MODULES}
    found: dict[str, object] = {}
    for home, module in homes.items():
        for name in module.__all__:
            value = getattr(module, name)
            if not callable(value):
                continue
            found[f"{home}.{name}"] = value
            if inspect.isclass(value):
                for method in public_methods(value):
                    found[f"{home}.{name}.{method}"] = getattr(value, method)
    return found
