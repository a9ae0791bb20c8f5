"""A hands-on course on attention and Transformers: every implementation once, tested."""

__version__ = "0.1.0"
