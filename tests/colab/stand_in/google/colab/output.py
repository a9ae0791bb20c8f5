"""Widgets of other makers: shown once they are asked for, as anywidget does by itself."""

from types import SimpleNamespace

_widgets = SimpleNamespace(_installed_url=None)


def enable_custom_widget_manager() -> None:
    _widgets._installed_url = "https://ssl.gstatic.com/colaboratory-static/widgets/colab-cdn-widget-manager/stand-in"


def disable_custom_widget_manager() -> None:
    _widgets._installed_url = None


def clear(wait: bool = False, output_tags: object = ()) -> None:
    from IPython.display import clear_output

    clear_output(wait=wait)
