"""The host side of every widget: one JavaScript module, a static picture that needs no script, or a live view.

A widget is a module in ``coursekit/viz/js`` with ``export function mount(el, data, {emit})``. It replaces the
content of ``el`` and returns ``{update(data)}``; ``emit(message)`` reaches Python where a kernel is there to
answer. The module knows nothing about notebooks.

By default a widget is plain HTML: the static picture, with the module and its data inline behind it. Where
scripts are stripped (an untrusted notebook, a printout) the picture simply stays. ``live()`` shows the same
module as an anywidget, in touch with the kernel. On the course's site a widget that was given a model by
``in_browser()`` is answered by that model in the reader's browser: ``coursekit/viz/browser`` has what runs there.
"""

import base64
import hashlib
import json
import re
import uuid
import zlib
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

MAX_BYTES = 1_000_000
ROOM = MAX_BYTES - 100_000  # what data and static picture may take together; the rest is for the module

# JupyterLab's Presentation Mode enlarges text and code, from 14 to 17 pixels; what has sizes of its own grows with them
PRESENTED = "<style>.jp-mod-presentationMode .ck-grows{zoom:1.25}</style>"
IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+)\.js";\n', re.MULTILINE)


@cache
def source(name: str) -> str:
    """The text of a module in ``coursekit/viz/js``, with those that it imports in front of it, as one module."""
    found: dict[str, str] = {}

    def add(one: str) -> None:
        text = (files("coursekit.viz") / "js" / f"{one}.js").read_text(encoding="utf-8")
        for other in IMPORT.findall(text):
            if other not in found:
                add(other)
        found[one] = IMPORT.sub("", text)

    add(name)
    return "".join(found.values())


def in_script(data: Any) -> str:
    """Data as JSON that may stand inside of a script.

    ``</script`` in a text would end the script; ``<!--`` and then ``<script`` would keep it from ending.
    """
    return json.dumps(data, ensure_ascii=False).replace("</", "<\\/").replace("<!--", "\\u003c!--")


def pack(array: np.ndarray) -> dict[str, Any]:
    """An array as JSON: float32 in base64 with its shape. ``unpack`` in shared.js reads it."""
    array = np.ascontiguousarray(array, dtype="<f4")
    return {"shape": list(array.shape), "float32": base64.b64encode(array.tobytes()).decode()}


def pack_bytes(array: np.ndarray) -> dict[str, Any]:
    """An array of uint8 as JSON: compressed (zlib) in base64 with its shape. ``inflate`` in shared.js reads it."""
    raw = np.ascontiguousarray(array, dtype=np.uint8).tobytes()
    shortest = None
    # of noise only the frequencies of the bytes help, and searching it for repetitions costs a tenth of the size
    for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY):
        compressor = zlib.compressobj(9, strategy=strategy)
        packed = compressor.compress(raw) + compressor.flush()
        shortest = packed if shortest is None else min(shortest, packed, key=len)
    return {"shape": list(array.shape), "deflated": base64.b64encode(shortest).decode()}


def to_numpy(values: Any) -> np.ndarray:
    """A NumPy array of numbers, a list of them, or a tensor on any device, as float64."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=float)


def to_mask(values: Any) -> np.ndarray:
    """A boolean array, list or tensor as a boolean NumPy array; True = may attend (or: is real)."""
    mask = np.asarray(values.detach().cpu().numpy() if hasattr(values, "detach") else values)
    if mask.dtype != bool:
        raise ValueError(f"a mask of {mask.dtype} was given: it must be boolean, True = may attend")
    return mask


def n_bytes(text: str) -> int:
    """Of a text in UTF-8; half a character in it is no reason to refuse it."""
    return len(text.encode("utf-8", "surrogatepass"))


class Widget:
    """Base of the widgets. A subclass sets ``module`` and ``data`` and says what stands there without scripts."""

    module: str
    data: dict[str, Any]

    def static_html(self) -> str:
        """What is shown where no script runs: inline styles only."""
        raise NotImplementedError

    def size(self) -> int:
        """Bytes that data and static picture take in a page; a widget of words keeps them below ``ROOM``."""
        return n_bytes(in_script(self.data)) + n_bytes(self.static_html())

    def _repr_html_(self) -> str:
        data = in_script(self.data)
        if (size := n_bytes(data)) > MAX_BYTES:
            raise ValueError(f"the widget's data take {size:,} bytes, more than {MAX_BYTES:,}: show a part of it")
        name = f"ck-{uuid.uuid4().hex[:12]}"
        # every view of the same output runs the script again and mounts the element of its own
        return (
            f'<div data-ck="{name}">{self.static_html()}</div>'
            f'<script type="module">{source(self.module)}\n'
            "const stored = (mount, el, data) => mount(el, data, {emit() {}});\n"
            f"const data = {data};\n"
            f"for (const el of document.querySelectorAll('[data-ck=\"{name}\"]:not([data-mounted])')) "
            "{ el.dataset.mounted = ''; (globalThis.courseModels ?? stored)(mount, el, data); }</script>"
        )

    def in_browser(self, model: Any, **options: Any) -> "Widget":
        """Name the model that answers on the site, where there is no kernel; returns the widget itself.

        Elsewhere nothing changes, and without that model the page has its stored answers.

        Args:
            model: a name of ``coursekit.commands.browser.MODELS``; for a widget of several models, for each name that
                it shows such a name; or a ``Seq2Seq`` or ``Transformer`` that the lecture has trained, whose weights
                then go along, in float16.
            options: what the answer depends on besides, as ``viz/browser/replies.js`` says of each widget.
        """
        named = carried(model) if hasattr(model, "state_dict") else {"model": model}
        self.data = {**self.data, "browser": {"widget": self.module, **named, **options}}
        return self

    def live(self, answer: Callable[[Any], dict[str, Any] | None] | None = None):
        """The same module with a kernel behind it.

        Args:
            answer: called with each message of the module; what it returns replaces the data.
        """
        view = live_view(self.module, self.data, still=self._repr_html_())
        if answer is not None:

            def on_message(_, content, __):
                changed = answer(content)
                if changed is not None:
                    view.data = changed

            view.on_msg(on_message)
        return view


def carried(model: Any) -> dict[str, Any]:
    """What a page carries of a model that was trained in the lecture; ``commands/browser.py`` makes it again."""
    from safetensors.torch import save

    weights = save({name: x.cpu().half().contiguous() for name, x in model.state_dict().items()})
    about = {"kind": type(model).__name__, "config": asdict(model.config)}
    name = hashlib.sha256(json.dumps(about).encode() + weights).hexdigest()[:16]
    return {"model": f"trained-{name}", "trained": {**about, "float16": base64.b64encode(weights).decode()}}


def read_text(data: dict[str, Any], read: Callable[[str], Widget]) -> Callable[[dict[str, str]], dict[str, Any]]:
    """An ``answer`` for ``Widget.live`` to what is typed: the data of ``read(text)``, or why it is refused.

    Args:
        data: what is shown at first.
        read: text -> widget. The message of a ``ValueError`` becomes ``error``.
    """
    shown = data

    def answer(message: dict[str, str]) -> dict[str, Any]:
        nonlocal shown
        error = ""
        try:
            shown = read(str(message["source"])).data
        except ValueError as refused:
            error = str(refused)
        return {**shown, "error": error}

    return answer


def live_view(module: str, data: dict[str, Any], still: str = ""):
    """An anywidget that shows a module and follows its ``data``; ``still`` is shown where no widget can be."""
    import anywidget
    import traitlets

    class View(anywidget.AnyWidget):
        _esm = source(module) + (
            "\nexport default {render({model, el}) {"
            " const view = mount(el, {...model.get('data'), live: true}, {emit: (message) => model.send(message)});"
            " const follow = () => view.update({...model.get('data'), live: true});"
            " model.on('change:data', follow);"
            " return () => model.off('change:data', follow);"
            "}};"
        )
        data = traitlets.Dict().tag(sync=True)

        def _repr_mimebundle_(self, **kwargs):
            bundle = super()._repr_mimebundle_(**kwargs)
            content, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
            return {**(content or {}), **({"text/html": still} if still else {})}, metadata

    return View(data=data)
