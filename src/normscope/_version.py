"""The version, where both the package and its build find it without importing anything."""

__version__ = "0.1.0"
