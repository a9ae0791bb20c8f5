"""What is prepared for the readers of a page: folded answers, links between claims and cells, the glossary."""

import nbformat

from coursekit.commands.reading import after_questions, for_readers, glossary, with_places, with_term_places
from coursekit.viz.claims import Claims

new_text, new_code = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell


def code(source: str, text: str = ""):
    return new_code(source, outputs=[nbformat.v4.new_output("stream", text=text)] if text else [])


def notebook(*cells):
    return nbformat.v4.new_notebook(cells=list(cells))


def test_what_is_shown_before_an_answer_is_folded_and_nothing_else():
    told = notebook(
        code("before", "1"),
        new_text("## Part\n\n**Predict.** *How many?*"),
        code("asked", "2"),
        new_text("A remark."),
        code("asked too", "3"),
        new_text("<details><summary>Answer</summary>\n\nTwo.\n</details>"),
        code("settled", "4"),
        new_text("**Predict.** *And here?*"),
        code("asked again", "5"),
        new_text("## The next part"),
        code("forgotten", "6"),
    )
    told.cells[4].metadata["jupyter"] = {"source_hidden": True}  # on its page its code is folded anyway
    for_readers(told, [])
    tags = {cell.source: cell.metadata["tags"] for cell in told.cells if "tags" in cell.metadata}
    assert tags == {"asked": ["hide-cell"], "asked too": ["hide-output"], "asked again": ["hide-cell"]}, (
        "the code, too, whose titles may say what comes out"
    )
    assert told.cells[2].metadata["mystnb"]["code_prompt_show"] == "Show the code and its output"


def test_a_new_slide_is_another_slide_though_the_question_is_open():
    asked = notebook(new_text("**Predict.** *How many?*"), code("here"), code("there"), code("there too"))
    asked.cells[2].metadata["slideshow"] = {"slide_type": "subslide"}
    assert [same for _, same in after_questions(asked)] == [True, False, False]


def test_a_claim_has_its_place_before_the_cell_that_prints_it():
    claims = [{"name": name, "value": 1.0, "at_least": 0, "ok": True} for name in ("a < b", "a", "never printed", "c")]
    table = nbformat.v4.new_output("display_data", {"text/html": Claims(claims)._repr_html_()})
    told = notebook(
        code("one", "a: 1\n"),  # no claim
        code("two", "✓ a < b: 1\n✓ a: 1\n"),
        code("three", "✓ c: 1\n✓ a: 1\n"),  # a was placed before
        new_code(
            "claims()", outputs=[nbformat.v4.new_output("display_data", {"text/html": Claims(claims)._repr_html_()})]
        ),
    )
    assert for_readers(told, claims) == {"a < b", "a", "c"}
    sources = [cell.source for cell in told.cells]
    places = '<span id="claim-0"></span><span id="claim-1"></span>'
    two = f'<div class="claimed">{places}<a href="#verdict-0">2 claims</a></div>'
    three = '<div class="claimed"><span id="claim-3"></span><a href="#verdict-3">claim</a></div>'
    assert sources == ["one", two, "two", three, "three", "claims()"]
    table = told.cells[-1].outputs[0].data["text/html"]
    assert [table.count(f'<a id="verdict-{i}" href="#claim-{i}">') for i in range(4)] == [1, 1, 0, 1]
    assert '<a id="verdict-0" href="#claim-0">a &lt; b</a>' in table
    assert ">never printed</td>" in table
    assert '<a href="x.html#claim-3">c</a>' in with_places(Claims(claims)._repr_html_(), claims, {"c"}, "x.html")


def test_the_glossary_is_read_with_other_names_places_and_lectures():
    text = (
        "- **byte-pair encoding** (also: BPE; pairs, merged): It *merges* `a`. [01, part 3](../notebooks/01.ipynb)\n"
        "- **base (of pairs)**: Another. [12, part 3](x)\n- **loose**: Nowhere.\n"
        "- **mask**: Hides. [02, part 1](x)\n"
    )
    assert glossary(text) == [
        (
            ["byte-pair encoding", "BPE", "pairs", "merged"],
            "It merges a. 01, part 3",
            "term-byte-pair-encoding",
            "01",
            False,
        ),
        (["loose"], "Nowhere.", "term-loose", "00", False),
        (["mask"], "Hides. 02, part 1", "term-mask", "02", True),
    ]
    placed = with_term_places(text)
    assert '- <span id="term-byte-pair-encoding"></span>**byte-pair encoding** (also' in placed
    assert "- **base (of pairs)**" in placed
