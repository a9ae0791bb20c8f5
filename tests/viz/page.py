"""A plain page around widgets, for the tests in a browser."""

import json

from axe_playwright_python.sync_playwright import Axe

from coursekit.viz.widget import source

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


def themed(widget, scheme: str) -> str:
    background = "#111" if scheme == "dark" else "#fff"
    return f"<style>body{{background:{background};color:gray}} h1{{color:#777}}</style>{widget._repr_html_()}"


def violations(page) -> list[tuple[str, str]]:
    """What axe finds wrong with the widget."""
    found = Axe().run(page, context="[data-ck]").response["violations"]
    return [(v["id"], v["nodes"][0]["html"]) for v in found]


def numbers(texts: list[str]) -> list[float]:
    """As shown, with a true minus sign."""
    return [float(text.replace("−", "-")) for text in texts]
