"""What the tests of the widgets share: a plain page in a browser, a kernel's answers, and checks that several need."""

import io
import json
import re

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from matplotlib.colors import to_rgb
from PIL import Image

from coursekit.viz.tokens import visible
from coursekit.viz.widget import source

EVIL = "<!--<script></script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>\"quote\" & é"

LIVE = """<div id=there></div><script type=module>{module}
window.sent = [];
window.view = mount(document.getElementById('there'), {{...{data}, live: true}}, {{emit: (m) => window.sent.push(m)}});
</script>"""


def page_of(browser, body: str, scripts: bool = True, scheme: str = "light", width: int = 900):
    context = browser.new_context(
        java_script_enabled=scripts, color_scheme=scheme, viewport={"width": width, "height": 900}
    )
    page = context.new_page()
    page.errors = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("console", lambda message: page.errors.append(message.text) if message.type == "error" else None)
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    html = f"<!doctype html><html lang='en'><title>t</title><body><main><h1>Widget</h1>{body}</main></body></html>"
    page.route("http://ck.test/**", lambda route: route.fulfill(body=html, content_type="text/html; charset=utf-8"))
    page.goto("http://ck.test/")
    page.requests = requests
    return page


def live_page(browser, module, data, **kwargs):
    """The module alone, as a live view mounts it; what it emits is in ``window.sent``."""
    return page_of(browser, LIVE.format(module=source(module), data=json.dumps(data)), **kwargs)


def status(page) -> str:
    return page.locator("[aria-live]").inner_text()


def alert(page) -> str:
    return page.locator("[role=alert]").inner_text()  # as a role it is only there while it says something


def themed(widget, scheme: str) -> str:
    background = "#111" if scheme == "dark" else "#fff"
    return f"<style>body{{background:{background};color:gray}} h1{{color:#777}}</style>{widget._repr_html_()}"


def violations(page, context: str = "[data-ck]", scheme: str = "light") -> list[tuple[str, str]]:
    """What axe finds wrong with the widget; a live page's is in ``#there``. In the dark nothing but colours differ."""
    colours = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
    found = Axe().run(page, context=context, options=colours if scheme == "dark" else None).response["violations"]
    return [(v["id"], v["nodes"][0]["html"]) for v in found]


def accessible(browser, widget, scheme: str):
    """A page of the scheme, after the checks that the widget took its colours and that axe finds nothing wrong."""
    page = page_of(browser, themed(widget, scheme), scheme=scheme)
    page.locator(".ck [aria-live]").wait_for()
    dark = page.locator(".ck[data-dark]").count()
    assert dark == (scheme == "dark"), f"{dark} dark widgets on a {scheme} page"
    found = violations(page, scheme=scheme)
    assert found == [], found
    return page


def contrast(one: str, other: str) -> float:
    """Of two colours, as Matplotlib or a browser writes them: 1 to 21. WCAG asks for 4.5 of text and for 3 of lines."""

    def luminance(color: str) -> float:
        rgb = [int(c) / 255 for c in re.findall(r"\d+", color)] if color.startswith("rgb(") else to_rgb(color)
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
        return np.dot(linear, (0.2126, 0.7152, 0.0722)) + 0.05

    dark, light = sorted([luminance(one), luminance(other)])
    return light / dark


def fits(page, width: int) -> None:
    """The page has no need to scroll sideways."""
    needed = page.evaluate("document.documentElement.scrollWidth")
    assert needed <= width, f"{needed} pixels wide on a page of {width}"


def fits_a_phone(browser, widget, scripts: bool, *steps) -> None:
    """390 pixels are enough, with scripts also after each step (a function of the page), and no number is cut."""
    page = page_of(browser, widget._repr_html_(), width=390, scripts=scripts)
    fits(page, 390)
    if scripts:
        for step in steps:
            step(page)
            fits(page, 390)
        found = page.locator(".number").evaluate_all(
            "all => all.map(x => [x.textContent, x.scrollWidth <= x.clientWidth + 1])"
        )
        assert found, "the page shows numbers"
        cut = [text for text, whole in found if not whole]
        assert cut == [], f"cut: {cut}"


def harmless(page, foreign: str) -> None:
    """No script of a text ran, no element that only a text could bring (a selector) is there, nothing was fetched."""
    assert page.evaluate("window.hacked") is None, "a script of the text ran"
    assert page.locator(foreign).count() == 0, f"{foreign} stand on the page"
    assert page.requests == ["http://ck.test/"], page.requests
    assert page.errors == [], page.errors


def hear(page) -> None:
    """From now on ``window.heard`` lists the keys that reach the document, as they would reach a notebook."""
    page.evaluate("() => { window.heard = []; document.addEventListener('keydown', e => window.heard.push(e.key)); }")


def keeps_its_keys(page, element, keys: list[str]) -> None:
    """Pressed on the element, none of these keys reaches the document; other keys do, and the browser's own."""
    hear(page)
    element.focus()
    for key in (*keys, "x", "Control+ArrowDown"):
        page.keyboard.press(key)
    heard = page.evaluate("window.heard")
    assert heard == ["x", "Control", "ArrowDown"], heard


def brightness(element) -> tuple[float, float]:
    """Of an element as it is seen: its commonest grey (the background), and the grey farthest from it (ink); 0 to 1."""
    grey = np.asarray(Image.open(io.BytesIO(element.screenshot())).convert("L"))
    background = int(np.bincount(grey.ravel()).argmax())
    ink = max(int(grey.min()), int(grey.max()), key=lambda shade: abs(shade - background))
    return background / 255, ink / 255


def go_elsewhere(page) -> None:
    """Move the focus to a text area outside the widget, as another cell of the notebook would be."""
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<textarea aria-label=cell></textarea>')")
    page.get_by_role("textbox", name="cell").focus()


def lefts(page, css: str, parts: list[str]) -> list[float]:
    """Where in an element each of these texts begins, in pixels from the left."""
    return page.locator(css).evaluate(
        """(box, parts) => parts.map((part) => {
          const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
          for (let node = walker.nextNode(); node; node = walker.nextNode()) {
            const at = node.data.indexOf(part);
            if (at < 0) continue;
            const range = document.createRange();
            range.setStart(node, at);
            range.setEnd(node, at + part.length);
            return range.getBoundingClientRect().left;
          }
        })""",
        parts,
    )


# --- a kernel's side of a live view ---------------------------------------------------------------------------


def asked_of(view, message: dict) -> dict:
    """The data of a live view after its kernel was sent the message, as a page sends it: through JSON."""
    (callback,) = view._msg_callbacks.callbacks
    callback(view, json.loads(json.dumps(message)), [])
    return view.data


def tell(page, data: dict) -> None:
    """The live page is given new data."""
    page.evaluate("(data) => view.update({...data, live: true})", data)


def told(page, view) -> None:
    """The kernel answers the live page's last question."""
    tell(page, asked_of(view, page.evaluate("window.sent.at(-1)")))


def refusing(fn):
    """``fn``, but what has "bad" in it is refused."""

    def answer(asked):
        if "bad" in asked:
            raise ValueError("no <bad> here")
        return fn(asked)

    return answer


# --- tokens and probabilities ---------------------------------------------------------------------------------


def numbers(texts: list[str]) -> list[float]:
    """As shown, with a true minus sign."""
    return [float(text.replace("−", "-")) for text in texts]


def best(pairs: list[tuple[str, float]], k: int) -> list[tuple[str, float]]:
    return sorted(pairs, key=lambda pair: pair[1], reverse=True)[:k]


def three_digits(p: float) -> str:
    """A probability as the widgets show it."""
    return "< 0.001" if p < 0.0005 else f"{p:.3f}"


def with_others(pairs: list[tuple[str, float]]) -> list[tuple[str, str]]:
    """(token, probability) of each, and of all others together, as the widgets show them."""
    rest = 1 - sum(p for _, p in pairs)
    return [*((visible(token), three_digits(p)) for token, p in pairs), ("all others", three_digits(rest))]


def table_rows(table) -> list[tuple[str, ...]]:
    """What stands in each row of a static table."""
    rows = table.locator("tbody tr").all()
    return [tuple(text for tag in ("th", "td") for text in row.locator(tag).all_inner_texts()) for row in rows]


def shows_as_bars(side, pairs: list[tuple[str, float]]) -> None:
    """One model's side of a widget has these tokens and probabilities as bars, and a bar for all others together."""
    bars = side.get_by_role("button")
    tokens, texts = bars.locator(".token").all_inner_texts(), side.locator(".number").all_inner_texts()
    assert tokens == [visible(token) for token, _ in pairs], tokens
    assert texts == [text for _, text in with_others(pairs)], texts
    values = [*(p for _, p in pairs), 1 - sum(p for _, p in pairs)]
    exact = [float(bar.get_attribute("title").rsplit(": ", 1)[1]) for bar in bars.all()]
    np.testing.assert_allclose(exact, values[:-1], rtol=1e-6)
    # how much of each bar is filled, without its border
    shares = side.locator(".bar").evaluate_all(
        """all => all.map((bar) => {
          const [frame, filled] = [bar, bar.firstChild].map((el) => el.getBoundingClientRect().width);
          return filled / (frame - 2);
        })"""
    )
    np.testing.assert_allclose(shares, values, atol=2e-4)  # 1/64 pixel of 100 or more


def pointing_marks_the_token_in_both(page, sides: list, pairs: list[list[tuple[str, float]]], says: str) -> None:
    """Each bar of the first of two models, pointed at, is marked in both and nowhere else, and the status says what
    both give the token.

    Args:
        sides: the two models' sides of the widget.
        pairs: what they show.
        says: the status, with ``{token}``, ``{p}`` of the first model and ``{q}`` of the second.
    """
    shown = [dict(each) for each in pairs]
    first, second = shown
    assert first.keys() & second.keys(), "a token with a bar in both"
    assert first.keys() - second.keys(), "a token with a bar in the first alone"
    for i, (token, p) in enumerate(first.items()):
        sides[0].get_by_role("button").nth(i).hover()
        q = f"{second[token]:.3f}" if token in second else "has no bar for it"
        said, expected = status(page), says.format(token=visible(token), p=f"{p:.3f}", q=q)
        assert said == expected, f"{said} is not {expected}"
        for side, tokens in zip(sides, shown):
            marked = side.get_by_role("button").evaluate_all("all => all.map(bar => bar.classList.contains('same'))")
            assert marked == [t == token for t in tokens], f"{token!r}: {marked}"
        assert page.locator(".same").count() == 1 + (token in second), "and no other"


# --- what a widget refuses ------------------------------------------------------------------------------------


def largest(make, high: int, says: str) -> int:
    """The largest n for which ``make(n)`` is not refused; ``make(high)`` is, with a message that matches ``says``."""
    low = 1
    make(low)
    with pytest.raises(ValueError, match=says):
        make(high)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            make(middle)
            low = middle
        except ValueError:
            high = middle
    return low
