"""What the command ``coursekit`` does, and its commands."""

import sys

# jsonschema, with which nbformat checks notebooks, compiles 38 grammars for a format that no notebook has: 2 seconds.
sys.modules.setdefault("rfc3987_syntax", None)
