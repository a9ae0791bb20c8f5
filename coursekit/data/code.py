"""Programs that every machine has: the source files of Python's standard library.

One document for each file, split by name like ``coursekit.data.pydocs``. The text differs a little from one
version of Python to the next; quote ``coursekit.data.pydocs.fingerprint`` beside every figure that depends on it.
"""

from coursekit.data.pydocs import Document, in_split, standard_library


def documents(split: str = "train") -> list[Document]:
    """The source files of a split, by name, as they are.

    Args:
        split: ``"train"``, ``"validation"`` or ``"test"``.
    """
    return [document for document in in_split(standard_library(), split) if document.text.strip()]
