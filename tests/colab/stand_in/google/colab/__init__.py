"""Stands in for Colab's own package: what a notebook or a widget meets there, without a browser behind it."""

from google.colab import drive, output

__all__ = ["drive", "output"]
