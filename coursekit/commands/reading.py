"""What a page of the site does for its reader: answers that wait for a guess, and claims that lead to their cells."""

import html
import re
from collections.abc import Iterator
from typing import Any

PREDICT = re.compile(r"^\*\*Predict", re.MULTILINE)
ANSWER = "<details><summary>Answer"


def after_questions(notebook: Any) -> Iterator[tuple[Any, bool]]:
    """The cells between each *Predict* and its folded answer, and whether they are on the slide that asks."""
    asked = same_slide = False
    for cell in notebook.cells:
        kind = cell.metadata.get("slideshow", {}).get("slide_type", "-")
        same_slide = same_slide and kind not in ("slide", "subslide")
        if cell.cell_type == "markdown" and PREDICT.search(cell.source):
            asked = same_slide = True
        elif cell.source.startswith((ANSWER, "## ")):
            asked = False  # settled, or forgotten: another part begins
        elif asked:
            yield cell, same_slide


def for_readers(notebook: Any, claims: list[dict[str, Any]]) -> set[str]:
    """Prepare an executed lecture for its page; returns the names of the claims that have a place on it.

    What stands between a *Predict* and its answer is folded, the code too, since its titles say what comes out; each
    claim leads to the cell that makes it and back; and a widget that answers in the browser has a place that one can be
    led to, ``cell-`` and the id of its cell.
    """
    import nbformat

    for cell, _ in after_questions(notebook):
        if cell.cell_type == "code":
            hidden = cell.metadata.get("jupyter", {}).get("source_hidden")
            cell.metadata["tags"] = [*cell.metadata.get("tags", []), "hide-output" if hidden else "hide-cell"]
            if not hidden:
                what = "the code and its output" if cell.outputs else "the code"
                cell.metadata["mystnb"] = {"code_prompt_show": f"Show {what}", "code_prompt_hide": f"Hide {what}"}
    cells, placed = [], set()
    numbers = {claim["name"]: i for i, claim in enumerate(claims)}
    for cell in notebook.cells:
        printed = "".join(output.get("text", "") for output in cell.get("outputs", []))
        made = [name for name in numbers if name not in placed and f"✓ {name}: " in printed]
        if made:
            placed |= set(made)
            places = "".join(f'<span id="claim-{numbers[name]}"></span>' for name in made)
            said = "claim" if len(made) == 1 else f"{len(made)} claims"
            link = f'<div class="claimed">{places}<a href="#verdict-{numbers[made[0]]}">{said}</a></div>'
            cells.append(nbformat.v4.new_markdown_cell(link))
        for output in cell.get("outputs", []):
            page = output.get("data", {}).get("text/html", "")
            if '"browser": ' in page:
                cells.append(nbformat.v4.new_markdown_cell(f'<div id="cell-{cell.id}"></div>'))
            if "<th>verdict</th>" in page:
                output.data["text/html"] = with_places(page, claims, placed, "")
        cells.append(cell)
    notebook.cells = cells
    return placed


def with_places(table: str, claims: list[dict[str, Any]], placed: set[str], page: str) -> str:
    """A table of claims with links to the cells that make them, on ``page`` or, if that is empty, on its own."""
    for i, claim in enumerate(claims):
        name = html.escape(claim["name"])
        if claim["name"] in placed:
            place = "" if page else f'id="verdict-{i}" '
            table = table.replace(f">{name}</td>", f'><a {place}href="{page}#claim-{i}">{name}</a></td>', 1)
    return table


# They mean something else, too, such as the temperature of the air: explained only in the lecture that introduces them.
EVERYDAY = {
    *("advantage", "bias", "block", "centring", "claim", "collapse", "gate", "gradient", "head", "horizon", "mask"),
    *("policy", "reference", "rival", "segment", "smoothing", "span", "splits", "surprise", "temperature", "view"),
}


def glossary(text: str) -> list[tuple[list[str], str, str, str, bool]]:
    """Of each term of ``docs/glossary.md`` its names, meaning, place on the page, lecture, and whether ``EVERYDAY``.

    A term with something in brackets behind it, such as *margin (of DPO)*, is left out: the word alone means more.
    """
    found = []
    for term, others, meaning in re.findall(r"^- \*\*([^*]+)\*\*(?: \(also: ([^)]*)\))?: (.*)$", text, re.MULTILINE):
        if "(" not in term:
            plain = re.sub(r"[*`]|\[([^\]]*)\]\([^)]*\)", r"\1", meaning)
            lecture = re.search(r"\[(\d\d), part", meaning)
            names = [term, *filter(None, re.split(r"[,;]\s*", others))]
            found.append((names, plain, place_of(term), lecture[1] if lecture else "00", term in EVERYDAY))
    return found


def place_of(term: str) -> str:
    return "term-" + re.sub(r"\W+", "-", term.lower()).strip("-")


def with_term_places(text: str) -> str:
    """The glossary with a place at each term, for links."""
    return re.sub(
        r"^- \*\*([^*(]+)\*\*", lambda m: f'- <span id="{place_of(m[1])}"></span>**{m[1]}**', text, flags=re.M
    )
