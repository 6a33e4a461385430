"""The version, on its own so that any module and the build can read it alone."""

__version__ = "0.2.0"
