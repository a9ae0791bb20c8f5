import zlib

import numpy as np
import pytest

from coursekit.viz.tokens import visible
from coursekit.viz.write import Write, readable
from tests.viz.page import (
    EVIL,
    accessible,
    alert,
    asked_of,
    fits_a_phone,
    harmless,
    live_page,
    page_of,
    refusing,
    status,
    tell,
    three_digits,
    told,
    violations,
)

WORDS = [" cat", " sat", " on the", " mat", " and the dog", ".", "s", "\nThen"]
END = "Nothing is stored for this text: undo, start again, or run the notebook to go on."


def model(text: str) -> list[tuple[str, float]]:
    """Suggestions with probabilities, others after every text, in no order."""
    rng = np.random.default_rng(zlib.crc32(text.encode()))
    p = np.exp(rng.normal(size=len(WORDS)) * 1.5)
    return list(zip(WORDS, p / p.sum()))


def best(text: str, k: int = 3) -> list[tuple[str, float]]:
    return sorted(model(text), key=lambda pair: pair[1], reverse=True)[:k]


HAND = {
    "The": [(" cat", 0.25), (" old dog", 0.5), ("n", 0.0004), (" end", 0.0001)],
    "The old dog": [(" sleeps", 0.75), (" sleeps.\n", 0.5)],
    "The cat": [],
    "A": [(" cow", 1)],
}


def hand(**change) -> Write:
    return Write(**{"text": "The", "tree": HAND} | change)


def test_the_likeliest_suggestions_by_hand():
    widget = hand()
    assert widget.data["text"] == "The"
    assert dict(widget.data["tree"]) == {
        "The": [(" old dog", 0.5, "·old dog"), (" cat", 0.25, "·cat"), ("n", 0.0004, "n")],
        "The old dog": [(" sleeps", 0.75, "·sleeps"), (" sleeps.\n", 0.5, "·sleeps.⏎")],
        "The cat": [],
        "A": [(" cow", 1.0, "·cow")],
    }
    assert [pair[0] for pair in dict(hand(k=1).data["tree"])["The"]] == [" old dog"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [(" a b", "·a b"), ("  a  b ", "··a  b·"), (" ", "·"), ("a\nb", "a⏎b"), ("", ""), ("\u202ea", "U+202Ea")],
)
def test_spaces_inside_stay_spaces(text, shown):
    assert readable(text) == shown


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"text": ["The"]}, r"text is \['The'\]: must be a str, the whole text"),
        ({"text": "The\ud83d"}, r"text has a lone surrogate, U\+D83D, half of a character: leave it out"),
        ({"text": "a\r\nb"}, r"text has a carriage return \(\\r\), which a field cannot hold: end lines with"),
        ({"text": "the"}, r"tree has no 'the': give how the text itself can go on as tree\[text\]"),
        ({"tree": [("The", [])]}, "tree has no 'The'"),
        ({"tree": HAND | {("The", "cat"): []}}, r"a key of tree is \('The', 'cat'\): must be a str, the whole text"),
        ({"tree": {"The": None}}, r"tree\['The'\]: must be a list of \(suggestion, probability\)"),
        ({"tree": {"The": "abc"}}, r"tree\['The'\]: must be a list of \(suggestion, probability\)"),
        ({"tree": {"The": [(" cat", "likely")]}}, r"tree\['The'\]: must be a list of \(suggestion, probability\)"),
        ({"tree": {"The": [("", 0.5)]}}, r"tree\['The'\] has the token '': each must be str and not empty"),
        ({"tree": {"The": [(3, 0.5)]}}, r"tree\['The'\] has the token 3: each must be str"),
        ({"tree": {"The": [("a\r", 0.5)]}}, r"tree\['The'\] has a carriage return"),
        ({"tree": {"The": [("a", 0.5), ("a", 0.2)]}}, r"tree\['The'\]: the suggestion 'a' is given twice, leave one"),
        ({"tree": {"The": [("a", -0.1)]}}, r"the probability of 'a' is -0.1, but must lie in 0\.\.1"),
        ({"tree": {"The": [("a", 1.5)]}}, "the probability of 'a' is 1.5"),
        ({"tree": {"The": [("a", float("nan"))]}}, "the probability of 'a' is nan"),
        ({"tree": {"The": [(x, 0.1) for x in "abcd"] + [("e", 2)]}}, "the probability of 'e' is 2.0"),
        ({"k": 0}, "k=0: between 1 and 9 suggestions can be read while writing"),
        ({"k": 10}, "k=10: between 1 and 9"),
        ({"k": 3.0}, r"k=3\.0: between 1 and 9"),
        ({"tree": HAND | {"x" * 950_000: []}}, "the tree takes .* bytes, more than 900,000: give fewer texts or a sm"),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says) as refused:
        hand(**change)
    assert "\n" not in str(refused.value)


def test_grow_asks_for_every_text_once():
    asked = []

    def fn(text):
        asked.append(text)
        return model(text)

    grown = Write.grow("The", fn, depth=2, title="grown", k=2)
    expected = ["The", *("The" + s for s, _ in best("The", 2))]
    expected += [text + s for text in expected[1:] for s, _ in best(text, 2)]
    assert asked == expected
    assert grown.data == Write("The", {text: model(text) for text in expected}, "grown", k=2).data
    asked.clear()
    Write.grow("", lambda text: asked.append(text) or [("a", 0.5), ("aa", 0.25)], depth=2)
    assert asked == ["", "a", "aa", "aaa", "aaaa"], "two ways to the same text are one"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"depth": -1}, "depth=-1: must be a whole number, 0 or more"),
        ({"depth": 1.5}, r"depth=1\.5: must be a whole number"),
        ({"k": 0}, "k=0: between 1 and 9"),
        ({"text": None}, "text is None: must be a str"),
        ({"depth": 7}, "depth=7 with k=3 makes more than 2,000 texts: take a smaller one"),
        ({"fn": lambda text: [("a", 2)]}, "what comes after 'The': the probability of 'a' is 2.0"),
    ],
)
def test_grow_refuses(change, says):
    calls = []

    def fn(text):
        calls.append(text)
        return [(f" {x}{len(calls)}", 0.1) for x in "abc"]

    with pytest.raises(ValueError, match=says):
        Write.grow(**{"text": "The", "fn": fn} | change)
    assert len(calls) <= 2_000, "what is too much is refused before it is computed"


def test_a_kernel_suggests_and_refuses():
    asked = []

    def fn(text):
        asked.append(text)
        if text == "bad":
            raise ValueError("no such text")
        return model(text) if text != "wrong" else [("a", 3)]

    start = hand()
    view = start.live(fn)
    assert view.data == start.data
    message = {"text": "The dog", "rest": " ends", "turn": 1}
    data = asked_of(view, message)
    assert asked == ["The dog"]
    assert data["answer"] == [(s, pytest.approx(p, rel=1e-6), readable(s)) for s, p in best("The dog")]
    assert (data["asked"], data["error"]) == (message, "")
    data = asked_of(view, message | {"text": "bad"})
    assert (data["answer"], data["error"]) == (None, "no such text")
    data = asked_of(view, message | {"text": "wrong"})
    assert data["error"] == "what comes after 'wrong': the probability of 'a' is 3.0, but must lie in 0..1"
    data = asked_of(view, message | {"text": "\ud800"})
    assert data["error"].startswith("the text has a lone surrogate, U+D800")
    assert asked_of(view, message | {"text": ""})["error"] == ""
    view = start.live(lambda text: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        asked_of(view, message)


# --- in the browser ------------------------------------------------------------------------------------------

GROWN = Write.grow("The", model, depth=2, title="Write <b>")
HEBREW = Write("שלום", {"שלום": [(" עולם", 0.5), (" טוב", 0.25)]})
ROUGH = Write(EVIL, {EVIL: [(EVIL, 0.5), ("x" * 300, 0.25), ("\u202e\n", 0.1)], EVIL + EVIL: [(" a", 1)]}, EVIL)
LONG = Write("word " * 200, {"word " * 200: [("more words " * 20, 0.9)]})
EMPTY = Write("", {"": [("The", 0.5)]})
WIDGETS = {"grown": GROWN, "hebrew": HEBREW, "rough": ROUGH, "long": LONG, "empty": EMPTY, "hand": hand()}


def area(page):
    return page.get_by_role("textbox", name="Text")


def options(page) -> list[str]:
    return page.get_by_role("option").locator(".token").all_inner_texts()


def at_end(page) -> None:
    area(page).focus()
    page.keyboard.press("Control+End")


@pytest.mark.browser
def test_walking_through_the_stored_tree_with_the_keys(browser):
    page = page_of(browser, GROWN._repr_html_())
    text = "The"
    assert area(page).input_value() == text
    for i in (1, 2):
        at_end(page)
        page.keyboard.press("Tab")
        shown = best(text)
        assert options(page) == [readable(s) for s, _ in shown]
        numbers = page.get_by_role("option").locator(".number").all_inner_texts()
        assert numbers == [three_digits(p) for _, p in shown]
        exact = page.get_by_role("option").evaluate_all("all => all.map(x => Number(x.dataset.p))")
        np.testing.assert_allclose(exact, [p for _, p in shown], rtol=1e-6)
        for _ in range(i):
            page.keyboard.press("ArrowDown")
        s, p = shown[i]
        assert status(page) == f"Suggestion {i + 1} of 3: “{readable(s)}” {p:.3f}."
        page.keyboard.press("Enter")
        text += s
        assert area(page).input_value() == text
        assert status(page) == f"Taken: “{readable(s)}”. Tab suggests what comes next."
        assert page.get_by_role("listbox").count() == 0
    page.keyboard.press("Tab")
    text += best(text)[0][0]
    page.keyboard.press("Enter")
    assert area(page).input_value() == text
    assert status(page).endswith(f"”. {END}")
    page.keyboard.press("Tab")
    assert status(page) == END
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    page.get_by_role("button", name="Start again").click()
    assert area(page).input_value() == "The"
    assert options(page) == [readable(s) for s, _ in best("The")]
    page.keyboard.press("Escape")
    area(page).press("Home")
    page.get_by_role("button", name="Start again").click()  # the text is as it was, the cursor is not
    assert options(page) == [readable(s) for s, _ in best("The")]
    assert page.requests == ["http://ck.test/"]
    assert page.errors == []


@pytest.mark.browser
def test_undo_brings_back_the_text_before(browser):
    page = page_of(browser, hand()._repr_html_())
    area(page).fill("")
    area(page).press_sequentially("The")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert area(page).input_value() == "The old dog"
    page.keyboard.press("Control+z")
    assert area(page).input_value() == "The", "what was typed before stays"
    page.keyboard.press("Control+Shift+z")
    assert area(page).input_value() == "The old dog"
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert area(page).input_value() == "The old dog sleeps.\n", "upwards from the first one is the last one"
    page.keyboard.type("x")
    for text in ["The old dog sleeps.\n", "The old dog", "The"]:
        page.keyboard.press("Control+z")
        assert area(page).input_value() == text
    page.keyboard.press("Tab")
    assert options(page) == ["·old dog", "·cat", "n"]
    assert page.errors == []


@pytest.mark.browser
def test_typing_goes_on_as_usual(browser):
    page = page_of(browser, hand()._repr_html_())
    assert options(page) == ["·old dog", "·cat", "n"], "they stand there from the start"
    at_end(page)
    page.keyboard.press("Tab")
    page.keyboard.type("re")
    assert area(page).input_value() == "There"
    assert page.get_by_role("listbox").count() == 0
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowUp")
    page.keyboard.type("!")
    assert area(page).input_value() == "!There\n", "without a list the keys are the field's own"
    page.keyboard.press("Tab")
    assert status(page) == END
    area(page).fill("The barks")
    page.keyboard.press("Control+Home")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    assert options(page) == ["·old dog", "·cat", "n"], "of what stands before the cursor"
    page.keyboard.press("ArrowLeft")
    assert page.get_by_role("listbox").count() == 0, "the cursor moved away"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert area(page).input_value() == "The old dog barks"
    page.keyboard.type("?")
    assert area(page).input_value() == "The old dog? barks", "the cursor stands behind what was taken"
    area(page).fill("The cat")
    page.keyboard.press("Tab")
    assert status(page) == "No suggestion for this text."
    assert page.errors == []


@pytest.mark.browser
def test_escape_closes_and_then_tab_leaves(browser):
    page = page_of(browser, hand()._repr_html_() + "<button>after</button>")
    at_end(page)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.get_by_role("listbox").count() == 1
    page.keyboard.press("Escape")
    assert page.get_by_role("listbox").count() == 0
    assert status(page) == "Closed. Tab leaves the field now, typing goes on."
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "after"
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    page.keyboard.press("Tab")
    assert page.get_by_role("listbox").count() == 1, "that was for once"
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.textContent") == "Start again"
    assert page.get_by_role("listbox").count() == 0


@pytest.mark.browser
def test_the_mouse_alone_is_enough(browser):
    page = page_of(browser, hand()._repr_html_())
    page.get_by_role("option").nth(0).click()
    assert area(page).input_value() == "The old dog"
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    page.get_by_role("button", name="Suggest").click()
    page.get_by_role("option").nth(1).hover()
    assert page.get_by_role("option", selected=True).locator(".token").inner_text() == "·sleeps.⏎"
    page.get_by_role("option").nth(1).click()
    assert area(page).input_value() == "The old dog sleeps.\n"


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 900])
def test_the_list_stands_at_the_cursor(browser, width):
    line = "one two three four five six seven eight nine ten "
    text = line * 3 + "\nlast"
    page = page_of(
        browser, Write(text, {text[:n]: [("a", 0.5)] for n in (3, 60, len(text))})._repr_html_(), width=width
    )
    area(page).focus()
    seen = []
    for n in (3, 60, len(text)):
        area(page).evaluate("(el, n) => el.setSelectionRange(n, n)", n)
        page.keyboard.press("Shift")  # any key tells that the cursor moved
        page.keyboard.press("Tab")
        box, paper = page.get_by_role("listbox").bounding_box(), page.locator(".paper").bounding_box()
        caret = page.locator(".mirror span").bounding_box()
        assert box["x"] >= paper["x"] - 1
        assert box["x"] + box["width"] <= paper["x"] + paper["width"] + 1
        fits = caret["x"] + box["width"] <= paper["x"] + paper["width"]
        assert not fits or abs(box["x"] - caret["x"]) < 2
        assert 0 <= box["y"] - caret["y"] < 50
        seen.append((caret["x"], caret["y"]))
        page.keyboard.press("Escape")
    assert seen[0][1] < seen[2][1]
    assert area(page).evaluate("el => el.scrollHeight <= el.clientHeight"), "the whole text is in sight"
    # the mirror breaks its lines where the field does: as high as the field would be by itself
    alone = area(page).evaluate(
        "el => { el.style.alignSelf = 'start'; el.style.height = '0'; return el.scrollHeight; }"
    )
    assert abs(page.locator(".mirror").evaluate("el => el.offsetHeight") - alone) < 4


@pytest.mark.browser
def test_a_long_text_is_scrolled_and_its_list_stands_at_the_cursor(browser):
    page = page_of(browser, Write("line\n" * 80, {"line\n" * 80: [("a", 0.5)]})._repr_html_())
    sheet = page.locator(".sheet")
    assert sheet.bounding_box()["height"] < page.viewport_size["height"] / 2
    area(page).focus()
    area(page).evaluate("(el) => el.setSelectionRange(400, 400)")
    sheet.evaluate("el => { el.scrollTop = el.scrollHeight; }")
    page.keyboard.press("Tab")
    for moved in (0, -60):
        sheet.evaluate("(el, moved) => { el.scrollTop += moved; }", moved)
        page.evaluate("new Promise(requestAnimationFrame)")
        caret, shown = page.locator(".mirror span").bounding_box(), page.get_by_role("listbox").bounding_box()
        assert 0 <= shown["y"] - caret["y"] < 50
    page.emulate_media(media="print")
    assert sheet.evaluate("el => el.scrollHeight <= el.clientHeight"), "on paper the whole text stands there"


@pytest.mark.browser
def test_live_free_typing_asks_once(browser):
    view = GROWN.live(model)
    page = live_page(browser, "write", view.data)
    area(page).fill("My own text")
    page.keyboard.press("Tab")
    assert page.evaluate("window.sent") == [{"text": "My own text", "rest": "", "turn": 1}]
    assert status(page) == "Asking …"
    page.keyboard.press("Tab")
    assert page.evaluate("window.sent.length") == 1
    told(page, view)
    s, p = best("My own text")[0]
    assert status(page) == f"Suggestion 1 of 3: “{readable(s)}” {p:.3f}."
    page.keyboard.press("Enter")
    assert area(page).input_value() == "My own text" + s
    page.keyboard.press("Control+z")
    page.keyboard.press("Tab")
    assert options(page) == [readable(s) for s, _ in best("My own text")]
    assert page.evaluate("window.sent.length") == 1, "what is known is not asked again"
    assert page.errors == []


@pytest.mark.browser
def test_live_a_slow_answer_never_comes_over_newer_typing(browser):
    view = GROWN.live(model)
    page = live_page(browser, "write", view.data)
    area(page).fill("slow")
    page.keyboard.press("Tab")
    first = asked_of(view, page.evaluate("window.sent.at(-1)"))
    page.keyboard.type("er")
    tell(page, first)
    assert area(page).input_value() == "slower"
    assert page.get_by_role("listbox").count() == 0
    assert status(page) == ""
    page.keyboard.press("Tab")
    tell(page, first)
    assert page.get_by_role("listbox").count() == 0, "the answer is to another question"
    told(page, view)
    assert options(page) == [readable(s) for s, _ in best("slower")]
    page.keyboard.press("Escape")
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    page.keyboard.press("Tab")
    assert options(page) == [readable(s) for s, _ in best("slow")], "what came late is known"
    area(page).fill("left")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Start again").focus()
    told(page, view)
    assert page.get_by_role("listbox").count() == 0, "who went elsewhere is left alone"
    assert page.evaluate("document.activeElement.textContent") == "Start again"
    assert page.errors == []


@pytest.mark.browser
def test_live_a_refusal_and_a_view_shown_anew(browser):
    view = GROWN.live(refusing(model))
    page = live_page(browser, "write", view.data)
    area(page).fill("bad text")
    page.keyboard.press("Tab")
    told(page, view)
    assert alert(page) == "no <bad> here"
    assert area(page).input_value() == "bad text"
    assert violations(page, "#there") == []
    page.keyboard.type("!")
    assert alert(page) == ""
    area(page).fill("before after")
    area(page).evaluate("el => el.setSelectionRange(6, 6)")
    page.keyboard.press("Tab")
    assert page.evaluate("window.sent.at(-1)") == {"text": "before", "rest": " after", "turn": 2}
    told(page, view)
    again = live_page(browser, "write", view.data)
    assert area(again).input_value() == "before after"
    assert options(again) == [readable(s) for s, _ in best("before")]
    assert page.errors == again.errors == []


@pytest.mark.browser
def test_without_scripts_the_tree_stands_there(browser):
    page = page_of(browser, GROWN._repr_html_(), scripts=False)
    assert page.locator(".ck").count() == 0
    assert page.locator("main p").inner_text() == "Write <b>: The …"
    texts = ["The"]
    for _ in range(2):
        texts += [t + s for t in texts for s, _ in best(t) if t + s not in texts]
    rows = page.locator("tbody tr")
    for n, text in enumerate(dict.fromkeys(texts[:4])):
        for i, (s, p) in enumerate(best(text)):
            row = rows.nth(3 * n + i)
            assert row.locator("th").inner_text() == (readable(text) if i == 0 else "")
            assert row.locator("td").all_inner_texts() == [readable(s), three_digits(p)]
    page = page_of(browser, hand()._repr_html_(), scripts=False)
    assert page.locator("tbody").inner_text().count("(no suggestion)") == 1
    assert page.locator("tbody th").all_inner_texts() == ["The", "", "", "The old dog", "", "The cat", "A"]


@pytest.mark.browser
def test_text_is_text_and_nothing_is_fetched(browser):
    page = page_of(browser, ROUGH._repr_html_())
    assert page.locator(".ck strong").inner_text() == ROUGH.data["title"]
    assert area(page).input_value() == EVIL
    assert options(page) == [readable(EVIL), "x" * 300, "U+202E⏎"]
    at_end(page)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert area(page).input_value() == EVIL + EVIL
    assert visible(EVIL)[:4] in status(page)
    harmless(page, "img, .ck strong b")


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["grown", "rough", "hebrew"])
def test_accessible_in_both_themes(browser, name, scheme):
    page = accessible(browser, WIDGETS[name], scheme)
    assert page.get_by_role("option").count() > 1
    at_end(page)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.get_by_role("listbox").count() == 0
    assert violations(page) == []
    assert page.errors == []


@pytest.mark.browser
def test_a_reader_hears_the_chosen_suggestion(browser):
    page = page_of(browser, hand()._repr_html_())
    at_end(page)
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(
        """() => {
          const field = document.activeElement;
          const chosen = document.getElementById(field.getAttribute('aria-activedescendant'));
          return [chosen.querySelector('.token').textContent, chosen.getAttribute('aria-selected'),
            chosen.parentElement === document.getElementById(field.getAttribute('aria-controls'))];
        }"""
    ) == ["·cat", "true", True]
    assert page.get_by_role("option", name="·cat 0.250", exact=True).count() == 1
    page.keyboard.press("Escape")
    assert area(page).get_attribute("aria-activedescendant") is None


@pytest.mark.browser
@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("name", WIDGETS)
def test_a_phone_is_wide_enough(browser, name, scripts):
    fits_a_phone(browser, WIDGETS[name], scripts)


@pytest.mark.browser
def test_two_on_one_page_keep_to_themselves(browser):
    page = page_of(browser, hand()._repr_html_() * 2)
    second = page.get_by_role("textbox").nth(1)
    second.focus()
    page.keyboard.press("Control+End")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.get_by_role("textbox").nth(0).input_value() == "The"
    assert second.input_value() == "The old dog"
