"""The site's pages, made light: what the theme loads and no reader needs is dropped, and what is large waits.

A telephone on a slow network would wait for seconds before it shows a first line.
"""

import hashlib
import re
from pathlib import Path

from coursekit.commands.lectures import with_punctuation_held, without_empty_headers

# as ``figure_html`` in viz/figures.py and ``Widget`` in viz/widget.py write them
FIGURE = re.compile(
    r'<svg [^>]*viewBox="0 0 (?P<width>[\d.]+) (?P<height>[\d.]+)"[^>]*role="img" aria-label="(?P<alt>[^"]*)"'
    r'[^>]* style="(?P<style>[^"]*)">.*?</svg>',
    re.DOTALL,
)
WIDGET = re.compile(r'(<div data-ck="(ck-\w+)">.*?)<script type="module">(.*?)</script>', re.DOTALL)
# the theme's text and page: a picture in a file does not take them from the page, and may be looked at by itself
INK = {"light": "#222832", "dark": "#ced6dd"}
GROUND = {"light": "#ffffff", "dark": "#121212"}


def lighter(page: str, searches: bool) -> str:
    """A page of the theme without what keeps a telephone waiting and does nothing for its reader.

    The theme loads 1.5 MB of icons as a script although it draws them by a font, the index of all words although only
    the page that ``searches`` needs it, and wraps each name and bracket of code in an element that changes no colour.
    """
    page = re.sub(r'<script [^>]*src="[^"]*/fontawesome\.js[^"]*"></script>', "", page)
    # scripts that come last: what comes first would wait for them
    page = re.sub(r'<link rel="preload" as="script" [^>]*>', "", page)
    if not searches:  # documentation_options.js stays as it is: a script in the page goes on with it
        page = re.sub(r'<script src="[^"]*(?:searchtools|language_data|searchindex)\.js"></script>', "", page)
        page = re.sub(r'(?<=<script )(?=src="[^"]*(?:doctools|sphinx_highlight|sphinx-book-theme)\.js)', "defer ", page)
    # light or dark from the first line on: else all is drawn in neither, and again when the theme's scripts are there
    dark = '(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")'
    page = page.replace('localStorage.getItem("theme") || "auto"', f'localStorage.getItem("theme") || {dark}')
    page = re.sub(r"<title>(.+) — \1</title>", r"<title>\1</title>", page)  # the front page is called as the site
    # its first part, the site's name, is in no part that a screen reader could go to
    page = page.replace('id="pst-primary-sidebar"', 'id="pst-primary-sidebar" role="navigation" aria-label="Site"')
    page = re.sub(r'(<p class="(?:collapsed|expanded) admonition-title">(?:Show|Hide) the )source<', r"\1code<", page)
    # it is called what one reads on it
    page = page.replace('<summary aria-label="Toggle hidden content">', "<summary>")
    page = with_punctuation_held(page)
    return without_empty_headers(re.sub(r'<span class="(?:n|p|w)">([^<]*)</span>', r"\1", page))


def smaller_styles(site: Path) -> None:
    """Drop what the theme's styles say of classes that no page and no script names, and the icons that are left over.

    A browser shows nothing of a page before it has read them: 450 kB, of which a fifth is used, for 1,900 icons among
    others, with fonts of 240 kB.
    """
    from fontTools import subset

    static = site / "_static"
    scripts = "".join(file.read_text("utf-8") for file in static.rglob("*.js"))
    pages = "".join(file.read_text("utf-8") for file in site.rglob("*.html"))
    words = set(re.findall(r"[\w-]+", pages + scripts))
    begun = tuple(set(re.findall(r"\b\w[\w-]*-(?![\w-])", scripts)))  # and ended by a variable

    def rule(match: re.Match[str]) -> str:
        licence = "".join(re.findall(r"/\*!.*?\*/", match[1], re.DOTALL))
        plain = re.sub(r"/\*.*?\*/|:(?:not|is|where|has)\([^()]*(?:\([^()]*\)[^()]*)*\)", "", match[1], flags=re.DOTALL)
        classes = [re.findall(r"\.([A-Za-z_][\w-]*)", selector) for selector in plain.split(",")]
        known = (all(name in words or name.startswith(begun) for name in names) for names in classes)
        return match[0] if "@" in plain or any(known) else licence

    styles = ""
    for file in sorted(static.rglob("*.css")):
        text = re.sub(r"([^{}]+)\{[^{}]*\}", rule, file.read_text("utf-8"))
        file.write_text(text, encoding="utf-8")
        styles += text
    # an icon is a letter of the private ones of Unicode, written as itself or by its number
    letters = re.sub(r"\\([ef][\da-f]{3})\b", lambda code: chr(int(code[1], 16)), styles)
    for file in static.rglob("*.woff2"):
        options = subset.Options(flavor="woff2")
        with subset.load_font(file, options) as font:
            kept = subset.Subsetter(options)
            kept.populate(text=re.sub("[^\ue000-\uf8ff]", "", letters))
            kept.subset(font)
            subset.save_font(font, file, options)


def with_parts_apart(shown: str, folder: Path) -> str:
    """An output with its figures and its widget's script in files, which the page loads when its reader comes near.

    In the page they are most of it: a megabyte and 9,000 elements, with which a telephone is busy for seconds.
    """
    folder.mkdir(parents=True, exist_ok=True)

    def figure(match: re.Match[str]) -> str:
        name = hashlib.sha256(match[0].encode()).hexdigest()[:16]
        width, height = (round(float(match[side])) for side in ("width", "height"))
        looks = f'width="{width}" height="{height}" style="{match["style"]}" loading="lazy" decoding="async"'
        pictures = ""
        for theme, ink in INK.items():
            file = folder / f"{name}-{theme}.svg"
            drawing = match[0].replace(' style="', f' style="background:{GROUND[theme]};', 1)
            file.write_text(drawing.replace("currentColor", ink), encoding="utf-8")
            source = f"../_static/{folder.name}/{file.name}"
            picture = f'<img class="only-{theme}" src="{source}" alt="{match["alt"]}" {looks}>'
            pictures += f'<a class="only-{theme}" href="{source}" title="Open the figure by itself">{picture}</a>'
        return pictures

    def widget(match: re.Match[str]) -> str:
        # no module, since a browser loads none from a file; as in a module, its names are its own
        script = re.sub(r"^export ", "", match[3], flags=re.MULTILINE)
        (folder / f"{match[2]}.js").write_text(f'(() => {{"use strict";\n{script}\n}})();\n', encoding="utf-8")
        return match[1]

    return FIGURE.sub(figure, WIDGET.sub(widget, shown))
