"""The bar of a training run."""

from typing import Any

from tqdm.auto import tqdm
from tqdm.notebook import tqdm_notebook


class Bar(tqdm):
    """tqdm's bar; ``end`` leaves a line in its place, as a notebook's bar is a widget that no file keeps."""

    def __init__(self, **settings: Any):
        self.is_widget = isinstance(self, tqdm_notebook)
        super().__init__(**settings, leave=False, **({"display": False} if self.is_widget else {}))
        self.place = None
        if self.is_widget:
            from IPython.display import display

            self.place = display(self.container, display_id=True)

    def end(self, text: str) -> None:
        """Put ``text`` there instead."""
        self.close()
        if self.place is not None:
            self.place.update({"text/plain": text}, raw=True)
        else:
            self.write(text)
