"""Graded exercises: their parts and checks, release, and marking in a sandbox (see README.md beside this file)."""


class GradingError(Exception):
    """Something a person can mend, said in one line."""
