"""Starts a kernel as Colab does: ``google.colab`` is there before the first cell, by which libraries know Colab.

It is: Python imports the package before this module of it.
"""

from ipykernel.kernelapp import launch_new_instance

launch_new_instance()
