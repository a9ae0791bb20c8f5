"""What every model shares that Hugging Face keeps too: it is read and written in their layout."""

from pathlib import Path
from typing import Self

from torch import nn


class Pretrained(nn.Module):
    """A model with ``from_pretrained`` and ``save_pretrained``.

    What its weights are called there is known to ``coursekit/convert/NAME.py``, its own file being ``models/NAME.py``.
    """

    @classmethod
    def from_pretrained(cls, name_or_folder: str | Path, local_files_only: bool = False) -> Self:
        """A model of this class, in eval mode, from a folder or from the Hugging Face hub (``"gpt2"``).

        Args:
            local_files_only: take from the hub only what was fetched before.

        Raises:
            ValueError: the files are not those of such a model. Weights are read from safetensors, never from pickle.
            OSError: the hub does not have the files, or cannot be reached.
            ImportError: a name of the hub without huggingface_hub installed.
        """
        from coursekit.convert.hub import load_model  # above this room, so not before it is asked for

        return load_model(cls, name_or_folder, local_files_only)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``model.safetensors``, which the transformers library reads too."""
        from coursekit.convert.hub import save_model

        save_model(self, folder)
