import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coursekit.viz.next_token import NextToken
from coursekit.viz.tokens import visible
from tests.viz.page import (
    EVIL,
    accessible,
    alert,
    asked_of,
    best,
    fits_a_phone,
    go_elsewhere,
    harmless,
    keeps_its_keys,
    largest,
    lefts,
    live_page,
    page_of,
    pointing_marks_the_token_in_both,
    shows_as_bars,
    status,
    table_rows,
    tell,
    violations,
    with_others,
)

VOCAB = ["the", " cat", " sat", "\n", "dog", "é", "mat", " on", "internationalization", ".", "a", "b"]
PROMPT = ["Once", " upon", "\n"]


def model(tokens: list[str], seed: int = 0) -> list[tuple[str, float]]:
    """A distribution over VOCAB, another one after every text, in no order."""
    rng = np.random.default_rng([seed, zlib.crc32("|".join(tokens).encode())])
    p = np.exp(rng.normal(size=len(VOCAB)) * 1.5)
    return list(zip(VOCAB, p / p.sum()))


def two(tokens: list[str]) -> dict[str, list[tuple[str, float]]]:
    return {"bigram": model(tokens[-1:], 1), "LSTM": model(tokens, 2)}


HAND = {
    (): [("b", 0.25), ("a", 0.5), ("c", 0.125), ("d", 0.0625)],
    ("a",): [("x", 1.0)],
    ("a", "x"): [("y", 0.75), ("z", 0.0)],
    ("b",): [("a", 0.0004)],
}


def hand(**change) -> NextToken:
    return NextToken(**{"prompt": PROMPT, "tree": HAND, "k": 3} | change)


def node(widget: NextToken, *path: str) -> list:
    (found,) = [models for way, models in widget.data["nodes"] if way == list(path)]
    return found


def test_the_likeliest_tokens_and_what_is_left_by_hand():
    widget = hand()
    assert node(widget) == [[[["a", 0.5], ["b", 0.25], ["c", 0.125]], 0.125]]
    assert node(widget, "a") == [[[["x", 1.0]], 0.0]]
    assert node(widget, "a", "x") == [[[["y", 0.75], ["z", 0.0]], 0.25]]
    assert node(widget, "b") == [[[["a", 0.0004]], 0.9996]]
    assert widget.data["names"] == [""]
    assert widget.data["prompt"] == PROMPT
    assert widget.data["shown"] == {" upon": "·upon", "\n": "⏎"}


@given(st.data())
def test_the_numbers_are_the_given_ones(data):
    """To seven digits, of lists in any order that may be cut."""
    n, k, cut = (data.draw(st.integers(*ends)) for ends in ((1, 12), (1, 14), (0, 11)))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    p = np.exp(rng.normal(size=n) * 4)
    p = (p / p.sum()).astype(np.float32)[: n - min(cut, n - 1)]
    widget = NextToken([], {(): {"one": zip(VOCAB, p), "two": [("z", 1)]}}, k=k)
    (says, rest), _ = node(widget)
    order = np.argsort(-p, kind="stable")[:k]
    assert [token for token, _ in says] == [VOCAB[i] for i in order]
    np.testing.assert_allclose([shown for _, shown in says], p[order], rtol=5e-7)
    assert rest == pytest.approx(1 - p[order].sum(dtype=float), abs=2e-6)
    assert rest >= 0


def test_rounding_leaves_nothing():
    """The sum of the float32 of a softmax is rarely 1."""
    p = np.float32([1 / 3] * 3)
    assert p.sum(dtype=float) != 1
    assert node(NextToken([], {(): zip("abc", p)}))[0][1] == 0
    assert node(NextToken([], {(): [("a", 0.5005), ("b", 0.5)]}))[0][1] == 0
    assert node(NextToken([], {(): [("a", 0.99999)]}))[0][1] == pytest.approx(1e-5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"prompt": "Once upon"}, "prompt is one str, 'Once upon': give a list of tokens"),
        ({"prompt": ["Once", 3]}, "prompt has the token 3: each must be str and not empty"),
        ({"prompt": ["Once", ""]}, "prompt has the token '': each must be str and not empty"),
        ({"prompt": ["a\ud83d"]}, r"prompt has a lone surrogate, U\+D83D, half of a character: leave it out"),
        ({"k": 0}, "k=0: between 1 and 50 bars"),
        ({"k": 51}, "k=51: between 1 and 50"),
        ({"k": 2.0}, "k=2.0: between 1 and 50"),
        ({"tree": HAND[()]}, r"tree has no \(\): give what comes after the prompt itself as tree\[\(\)\]"),
        ({"tree": {("a",): [("x", 1)]}}, r"tree has no \(\)"),
        ({"tree": HAND | {"a": [("x", 1)]}}, "tree has the key 'a': each key must be a tuple of tokens"),
        ({"tree": HAND | {5: [("x", 1)]}}, "tree has the key 5: each key must be a tuple of tokens"),
        ({"tree": HAND | {("b", ""): [("x", 1)]}}, r"the key \('b', ''\) has the token ''"),
        ({"tree": HAND | {("d",): [("x", 1)]}}, r"tree\[\('d',\)\] cannot be reached: 'd' is none of the 3 bars"),
        ({"tree": HAND | {("c", "x"): [("x", 1)]}}, r"tree\[\('c', 'x'\)\] cannot be reached: 'x' is none"),
        ({"tree": {(): {}}}, r"tree\[\(\)\] names no model: give \[\(token, probability\), \.\.\.\] or \{name"),
        (
            {"tree": {(): {"one": [("a", 1)]}, ("a",): {"two": [("a", 1)]}}},
            r"tree\[\('a',\)\] is of \['two'\], but tree\[\(\)\] of \['one'\]: name the same",
        ),
        ({"tree": {(): []}}, r"tree\[\(\)\]: the list is empty, give at least one"),
        ({"tree": {(): None}}, r"tree\[\(\)\]: must be a list of \(token, probability\)"),
        ({"tree": {(): "abc"}}, r"tree\[\(\)\]: must be a list of \(token, probability\)"),
        ({"tree": {(): [("a", "likely")]}}, r"tree\[\(\)\]: must be a list of \(token, probability\)"),
        ({"tree": {(): {"one": [("a", 1)], "two": []}}}, r"tree\[\(\)\], two: the list is empty"),
        ({"tree": {(): [(5, 0.5)]}}, r"tree\[\(\)\] has the token 5: each must be str"),
        ({"tree": {(): [("\udc00", 0.5)]}}, r"tree\[\(\)\] has a lone surrogate, U\+DC00"),
        ({"tree": {(): [("a", 0.5), ("b", 0.1), ("a", 0.4)]}}, r"tree\[\(\)\]: the token 'a' is given twice"),
        ({"tree": {(): [("a", -0.1)]}}, r"the probability of 'a' is -0.1, but must lie in 0\.\.1"),
        ({"tree": {(): [("a", 1.1)]}}, r"the probability of 'a' is 1.1"),
        ({"tree": {(): [("a", float("nan"))]}}, r"the probability of 'a' is nan"),
        ({"tree": {(): [("a", 0.9), ("b", 0.2)]}}, "the probabilities add up to 1.1000, more than 1"),
        ({"prompt": ["x" * 950_000]}, "the tree takes 1,.* bytes, more than 900,000: give fewer levels or a smaller k"),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says) as refused:
        hand(**change)
    assert "\n" not in str(refused.value)


def test_what_the_bars_leave_out_is_checked_too():
    """The token that is given twice, or makes the sum too large, has no bar."""
    with pytest.raises(ValueError, match="'low' is given twice"):
        NextToken([], {(): [("a", 0.9), ("low", 0.01), ("low", 0.01)]}, k=1)
    with pytest.raises(ValueError, match=r"add up to 1\.3000"):
        NextToken([], {(): [("a", 0.9), ("b", 0.2), ("c", 0.2)]}, k=1)


def test_grow_asks_for_every_way_once():
    asked = []

    def fn(tokens):
        asked.append(tuple(tokens))
        return two(tokens)

    grown = NextToken.grow(PROMPT, fn, depth=2, title="grown", k=2)
    expected = [()]
    for path in [(), *((token,) for token in dict.fromkeys(t for p in two(PROMPT).values() for t, _ in best(p, 2)))]:
        bars = dict.fromkeys(token for pairs in two([*PROMPT, *path]).values() for token, _ in best(pairs, 2))
        expected += [(*path, token) for token in bars]
    assert asked == [(*PROMPT, *path) for path in expected]
    assert 1 + 2 + 4 <= len(expected) <= 1 + 4 + 16
    assert [tuple(way) for way, _ in grown.data["nodes"]] == expected
    by_hand = NextToken(PROMPT, {path: two([*PROMPT, *path]) for path in expected}, "grown", k=2)
    assert grown.data == by_hand.data
    only = NextToken.grow([], two, depth=0)
    assert [way for way, _ in only.data["nodes"]] == [[]]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"depth": -1}, "depth=-1: must be a whole number, 0 or more"),
        ({"depth": 1.5}, r"depth=1\.5: must be a whole number"),
        ({"k": "8"}, "k='8': between 1 and 50"),
        ({"k": 0}, "k=0: between 1 and 50"),
        ({"prompt": "Once"}, "prompt is one str, 'Once'"),
        ({"depth": 4, "k": 12}, "depth=4 with k=12 makes more than 5,000 nodes: take a smaller one"),
        ({"fn": lambda tokens: [("a", 2)]}, r"what comes after \(\): the probability of 'a' is 2.0"),
        (
            {"fn": lambda tokens: [("a", 1)] if len(tokens) < 4 else []},
            r"what comes after \('a',\): the list is empty",
        ),
    ],
)
def test_grow_refuses(change, says):
    calls = []

    def fn(tokens):
        calls.append(tokens)
        return model(tokens)

    with pytest.raises(ValueError, match=says):
        NextToken.grow(**{"prompt": PROMPT, "fn": fn} | change)
    assert len(calls) <= 5_000, "what is too much is refused before it is computed"


def test_numpy_numbers_and_tensors_and_iterators_are_taken():
    pairs = [("a", np.float32(0.5)), ("b", np.float64(0.25)), ("c", 0)]
    assert node(NextToken(iter(["x"]), {(): iter(pairs)}))[0][0] == [["a", 0.5], ["b", 0.25], ["c", 0.0]]


def test_the_largest_page_stays_below_the_limit():
    """Just below what is refused, with short tokens that take the most room as HTML."""

    def widget(n: int) -> NextToken:
        says = [("<" + "&" * i, 0.001) for i in range(50)]
        ways = [(), *((token,) for token, _ in says)]
        ways += [(*way, token) for way in ways[1:] for token, _ in says]
        return NextToken(["&"] * n, dict.fromkeys(ways[:150], says), k=50)

    n = largest(widget, 100_000, "give fewer levels or a smaller k")
    assert 880_000 < len(widget(n)._repr_html_().encode()) < 1_000_000


def test_a_kernel_answers_where_the_tree_ends():
    asked = []

    def fn(tokens):
        asked.append(list(tokens))
        if tokens[-1] == "bad":
            raise ValueError("no such token")
        if tokens[-1] == "alone":
            return {"bigram": [("x", 1)]}
        return two(tokens)

    start = NextToken(PROMPT, {(): two(PROMPT)}, "live", k=3)
    before = start._repr_html_().split("<script")[0].split(">", 1)[1]
    view = start.live(fn)
    assert view.data == start.data
    data = asked_of(view, {"path": [" cat"], "turn": 1})
    assert asked == [[*PROMPT, " cat"]], "the prompt stands in front"
    assert (data["path"], data["turn"], data["error"]) == ([" cat"], 1, "")
    expected = NextToken(PROMPT, {(): two(PROMPT), (" cat",): two([*PROMPT, " cat"])}, k=12).data["nodes"]
    assert data["nodes"] == [[way, [[says[:3], pytest.approx(1 - sum(p for _, p in says[:3]))] for says, _ in models]]
                             for way, models in expected]  # fmt: skip
    data = asked_of(view, {"path": [" cat", "bad"], "turn": 2})
    assert (data["path"], data["turn"], data["error"]) == ([" cat", "bad"], 2, "no such token")
    data = asked_of(view, {"path": ["alone"], "turn": 3})
    assert data["error"] == "the answer is of ['bigram'], but the prompt's of ['bigram', 'LSTM']: name the same"
    assert [way for way, _ in data["nodes"]] == [[], [" cat"]], "what was refused is not kept"
    data = asked_of(view, {"path": [" cat", "\n"], "turn": 4})
    assert data["error"] == ""
    assert data["shown"]["\n"] == "⏎"
    other = start.live(lambda tokens: two(["other"]))
    assert [way for way, _ in other.data["nodes"]] == [[]]
    asked_of(other, {"path": ["\n"], "turn": 1})
    assert [way for way, _ in other.data["nodes"]] == [[], ["\n"]], "views of different models share nothing"
    assert start._repr_html_().split("<script")[0].split(">", 1)[1] == before


def test_a_kernel_s_other_errors_are_not_hidden():
    with pytest.raises(ZeroDivisionError):
        asked_of(hand().live(lambda tokens: 1 / 0), {"path": ["a"], "turn": 1})


TWO = NextToken.grow(PROMPT, two, depth=2, title="Two <models>", k=5)
HEBREW = NextToken(["שלום", " עולם"], {(): [(" טוב", 0.5), ("مرحبا", 0.25)], (" טוב",): [("x", 0.5)]})
ROUGH = NextToken(
    [EVIL, "\u202e", "\ue000"],
    {
        (): {"<b>bold</b>": [(EVIL, 0.5), ("x" * 300, 0.25)], EVIL: [("\u202e", 0.5)]},
        (EVIL,): {"<b>bold</b>": [("a", 1)], EVIL: [("a", 1)]},
    },
    EVIL,
)
LONG = NextToken(["word"] * 400 + ["x" * 600], {(): [(f"{i}" * 40, 0.02) for i in range(50)]}, k=50)
WIDGETS = {"two": TWO, "hebrew": HEBREW, "rough": ROUGH, "long": LONG, "hand": hand()}


def side(page, m: int = 0):
    return page.locator(".side").nth(m)


def bars(page, m: int = 0):
    return side(page, m).get_by_role("button")


def said_text(page) -> str:
    """The tokens in the text box, those that were appended in brackets."""
    spans = page.locator(".text span:not(.end)").evaluate_all(
        "all => all.map(s => s.className === 'added' ? `[${s.textContent.trim()}]` : s.textContent.trim())"
    )
    return " ".join(spans)


@pytest.mark.browser
def test_every_number_is_the_models(browser):
    page = page_of(browser, TWO._repr_html_())
    path = []
    for _ in range(3):
        for m, (name, pairs) in enumerate(two([*PROMPT, *path]).items()):
            assert side(page, m).locator(".name").inner_text() == name
            assert bars(page, m).count() == 5
            shows_as_bars(side(page, m), best(pairs, 5))
        token = best(two([*PROMPT, *path])["LSTM"], 5)[2][0]
        bars(page, 1).nth(2).focus()
        page.keyboard.press("Enter")
        path.append(token)
    assert said_text(page) == " ".join([*map(visible, PROMPT), *(f"[{visible(token)}]" for token in path[:2])])
    assert page.requests == ["http://ck.test/"]
    assert page.errors == []


@pytest.mark.browser
def test_going_on_and_back_by_hand(browser):
    page = page_of(browser, hand()._repr_html_())
    back, again = (page.get_by_role("button", name=name) for name in ("Back", "Start again"))
    assert status(page) == "Most likely next: “a” 0.500."
    assert back.is_disabled()
    assert again.is_disabled()
    assert page.locator(".name").count() == 0, "one model alone needs no name"
    bars(page).nth(0).press("Enter")
    assert status(page) == "After “a”, most likely next: “x” 1.000."
    bars(page).nth(0).press("Enter")
    assert said_text(page) == "Once ·upon ⏎ [a] [x]"
    end = "The prepared tree ends here: go back, or run the notebook to go on."
    assert status(page) == f"After “x”, most likely next: “y” 0.750. {end}"
    assert [b.get_attribute("aria-disabled") for b in bars(page).all()] == ["true", "true"]
    bars(page).nth(1).press("Enter")
    assert said_text(page) == "Once ·upon ⏎ [a] [x]", "the tree has nothing behind it"
    assert status(page) == end
    back.click()
    assert said_text(page) == "Once ·upon ⏎ [a]"
    assert status(page) == "After “a”, most likely next: “x” 1.000."
    again.click()
    assert said_text(page) == "Once ·upon ⏎"
    assert [b.get_attribute("aria-disabled") for b in bars(page).all()] == [None, None, "true"]
    bars(page).nth(2).press("Enter")
    assert status(page) == "Nothing is prepared for “c”: choose another token, or run the notebook."
    bars(page).nth(1).click()
    assert said_text(page) == "Once ·upon ⏎ [b]"
    assert bars(page).locator(".number").all_inner_texts() == ["< 0.001"], "a small one is not zero"
    assert side(page).locator(".rest .number").inner_text() == "1.000"
    assert page.errors == []


@pytest.mark.browser
def test_keyboard_alone_is_enough(browser):
    page = page_of(browser, TWO._repr_html_())
    shown = [[visible(token) for token, _ in best(pairs, 5)] for pairs in two(PROMPT).values()]

    def focused():
        return page.evaluate("""() => {
          const here = document.activeElement;
          return [[...document.querySelectorAll('.side')].findIndex(side => side.contains(here)),
            here.querySelector('.token')?.textContent];
        }""")

    page.get_by_role("group", name="Text so far").focus()
    page.keyboard.press("Tab")
    assert focused() == [0, shown[0][0]]
    page.keyboard.press("Tab")
    assert focused() == [1, shown[1][0]], "one stop for each model"
    page.keyboard.press("Shift+Tab")
    for key, m, i in [
        ("ArrowUp", 0, 0),
        ("ArrowDown", 0, 1),
        ("ArrowDown", 0, 2),
        ("ArrowRight", 1, 2),
        ("ArrowRight", 1, 2),
        ("End", 1, 4),
        ("ArrowDown", 1, 4),
        ("ArrowUp", 1, 3),
        ("ArrowLeft", 0, 3),
        ("ArrowLeft", 0, 3),
        ("Home", 0, 0),
        ("ArrowDown", 0, 1),
    ]:
        page.keyboard.press(key)
        assert focused() == [m, shown[m][i]], key
        assert status(page).startswith(f"“{shown[m][i]}”: ")
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    assert focused() == [0, shown[0][1]], "Tab comes back to where one was"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    first = best(two(PROMPT)["LSTM"], 5)[1][0]
    after = [best(pairs, 5) for pairs in two([*PROMPT, first]).values()]
    assert focused() == [1, visible(after[1][0][0])], "the focus stays with the model that was chosen from"
    says = "; ".join(f"{n} “{visible(s[0][0])}” {s[0][1]:.3f}" for n, s in zip(("bigram", "LSTM"), after))
    assert status(page) == f"After “{visible(first)}”, most likely next: {says}."
    page.keyboard.press("Space")
    assert said_text(page) == f"Once ·upon ⏎ [{visible(first)}] [{visible(after[1][0][0])}]"
    page.keyboard.press("Backspace")
    assert said_text(page) == f"Once ·upon ⏎ [{visible(first)}]"
    assert focused()[0] == 1
    page.keyboard.press("Control+Backspace")
    assert said_text(page) == f"Once ·upon ⏎ [{visible(first)}]", "the browser's own keys stay its own"
    page.get_by_role("button", name="Back").focus()
    page.keyboard.press("Enter")
    assert said_text(page) == "Once ·upon ⏎"
    assert focused() == [0, shown[0][0]], "the button is of no use any more, and the focus is not lost"
    page.keyboard.press("Backspace")
    assert said_text(page) == "Once ·upon ⏎"
    page.locator(".ck strong").click()
    bars(page).first.click()
    page.locator(".ck strong").click()
    page.keyboard.press("Backspace")  # a click anywhere in it gives it the keys
    assert said_text(page) == "Once ·upon ⏎"
    assert page.errors == []


@pytest.mark.browser
def test_a_page_s_arrow_keys_stop_at_the_bars(browser):
    """A notebook would take them for its own."""
    page = page_of(browser, TWO._repr_html_())
    keeps_its_keys(page, bars(page).first, ["ArrowDown", "Home", "Backspace"])


@pytest.mark.browser
def test_pointing_finds_the_token_in_the_other_model(browser):
    page = page_of(browser, TWO._repr_html_())
    shown = [best(pairs, 5) for pairs in two(PROMPT).values()]
    says = "“{token}”: bigram {p}, LSTM {q}."
    pointing_marks_the_token_in_both(page, [side(page, m) for m in (0, 1)], shown, says)


@pytest.mark.browser
def test_text_is_text_and_nothing_is_fetched(browser):
    """Also ``<!--<script``, after which a browser does not see the end of a script."""
    page = page_of(browser, ROUGH._repr_html_())
    assert page.locator(".ck strong").inner_text() == EVIL
    assert said_text(page) == f"{visible(EVIL)} U+202E U+E000"
    assert page.locator(".name").all_inner_texts() == ["<b>bold</b>", EVIL]
    assert bars(page).locator(".token").all_inner_texts() == [visible(EVIL), "x" * 300]
    bars(page).first.click()
    assert said_text(page).endswith(f"[{visible(EVIL)}]")
    harmless(page, "img, .ck b")


@pytest.mark.browser
def test_right_to_left_tokens_keep_to_themselves(browser):
    """A Hebrew token neither changes places with its neighbours nor pulls over the number behind it."""
    page = page_of(browser, HEBREW._repr_html_())
    bars(page).first.focus()
    assert status(page) == "“·טוב”: 0.500."
    name, number = lefts(page, "[aria-live]", ["טוב", "0.500"])
    assert name < number
    one, two_, dots = lefts(page, ".text", ["שלום", "עולם", "…"])
    assert one < two_ < dots, "tokens stand in the order of the text, left to right"
    word, space = lefts(page, ".text", ["עולם", "·"])
    assert word < space, "a space in front of a Hebrew word is right of it"
    page = page_of(browser, HEBREW._repr_html_(), scripts=False)
    one, two_, dots = page.locator("p bdi").evaluate_all(
        "all => [...all, all[0].parentNode].map(x => x.getBoundingClientRect().right)"
    )
    assert one < two_ <= dots


@pytest.mark.browser
def test_a_line_feed_starts_a_new_line_and_the_end_is_in_sight(browser):
    page = page_of(browser, NextToken(["a", "\n", "b"], {(): [("c", 1)]})._repr_html_())
    a, feed, b = (span.bounding_box() for span in page.locator(".text span:not(.end)").all())
    assert a["y"] <= feed["y"] + 1
    assert b["y"] >= a["y"] + a["height"]
    assert abs(b["x"] - a["x"]) < 1
    page = page_of(browser, LONG._repr_html_())
    page.wait_for_function("document.querySelector('.text').scrollTop > 0")
    frame, end = (page.locator(css).bounding_box() for css in (".text", ".text .end"))
    assert end["y"] + end["height"] <= frame["y"] + frame["height"]


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", WIDGETS)
def test_accessible_in_both_themes(browser, name, scheme):
    page = accessible(browser, WIDGETS[name], scheme)
    bars(page).first.focus()
    assert violations(page) == []
    before = said_text(page)
    for _ in range(2):
        page.keyboard.press("Enter")
        assert violations(page) == []
    assert (said_text(page) != before) == (name != "long"), "the tree's end looks right too"
    assert page.errors == []


@pytest.mark.browser
def test_a_reader_hears_token_and_probability(browser):
    page = page_of(browser, TWO._repr_html_())
    token, p = best(two(PROMPT)["bigram"], 5)[1]
    group = page.get_by_role("group", name="Next tokens of bigram")
    assert group.get_by_role("button", name=f"{visible(token)} {p:.3f}", exact=True).count() == 1
    page = page_of(browser, hand()._repr_html_())
    assert page.get_by_role("group", name="Next tokens", exact=True).get_by_role("button").count() == 3


@pytest.mark.browser
@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("name", WIDGETS)
def test_a_phone_is_wide_enough(browser, name, scripts):
    fits_a_phone(browser, WIDGETS[name], scripts, lambda page: bars(page).first.press("Enter"))


@pytest.mark.browser
def test_without_scripts_text_and_numbers_stand_there(browser):
    page = page_of(browser, TWO._repr_html_(), scripts=False)
    assert page.locator(".ck").count() == 0
    assert page.locator("p").inner_text() == "Two <models>: Once ·upon ⏎ …"
    assert page.locator("caption").all_inner_texts() == ["bigram", "LSTM"]
    for m, pairs in enumerate(two(PROMPT).values()):
        assert table_rows(page.locator("table").nth(m)) == with_others(best(pairs, 5))
    page = page_of(browser, NextToken([], {(): [("<b>", 0.0001)]}, EVIL)._repr_html_(), scripts=False)
    assert page.locator("p").inner_text() == f"{EVIL}: (nothing yet) …"
    assert page.locator("tbody").inner_text().split("\n") == ["<b>\t< 0.001", "all others\t1.000"]


def answered(widget: NextToken, path: list[str], turn: int, **change) -> dict:
    """What ``live`` would send: the data with one more node."""
    nodes = [*widget.data["nodes"], [path, [[[["next", 0.75], ["a", 0.25]], 0.0]]]]
    return widget.data | {"nodes": nodes, "path": path, "turn": turn, "error": ""} | change


@pytest.mark.browser
def test_live_asks_where_the_tree_ends_and_shows_the_answer(browser):
    start = hand()
    page = live_page(browser, "next_token", start.data)
    assert [b.get_attribute("aria-disabled") for b in bars(page).all()] == [None] * 3, "each can be appended"
    bars(page).first.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("window.sent") == [], "what is prepared is not asked"
    page.keyboard.press("Backspace")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.evaluate("window.sent") == [{"path": ["c"], "turn": 1}]
    assert status(page) == "Asking what comes after “c” …"
    page.keyboard.press("ArrowUp")
    assert status(page) == "Asking what comes after “c” …", "the focus moves, and the question stays in sight"
    assert said_text(page) == "Once ·upon ⏎"
    tell(page, answered(start, ["c"], 1))
    assert said_text(page) == "Once ·upon ⏎ [c]"
    assert status(page) == "After “c”, most likely next: “next” 0.750."
    assert page.evaluate("document.activeElement.dataset.token") == "next"
    page.keyboard.press("Backspace")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert said_text(page) == "Once ·upon ⏎ [c]"
    assert len(page.evaluate("window.sent")) == 1, "what is known is not asked again"
    assert page.errors == []


@pytest.mark.browser
def test_a_late_answer_of_an_earlier_turn_is_passed_over(browser):
    start = hand()
    page = live_page(browser, "next_token", start.data)
    bars(page).nth(2).click()
    tell(page, start.data | {"turn": 0})  # as when another view of it has been answered
    assert said_text(page) == "Once ·upon ⏎"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")  # the tree holds it: the question is withdrawn
    assert said_text(page) == "Once ·upon ⏎ [b]"
    tell(page, answered(start, ["c"], 1))
    assert said_text(page) == "Once ·upon ⏎ [b]", "too late"
    bars(page).first.click()
    page.get_by_role("button", name="Start again").click()
    bars(page).nth(1).click()
    bars(page).first.click()
    sent = page.evaluate("window.sent")
    assert sent == [{"path": ["c"], "turn": 1}, {"path": ["b", "a"], "turn": 2}, {"path": ["b", "a"], "turn": 3}]
    tell(page, answered(start, ["b", "a"], 2, error="an earlier try failed", nodes=start.data["nodes"]))
    assert alert(page) == ""
    assert said_text(page) == "Once ·upon ⏎ [b]"
    tell(page, answered(start, ["b", "a"], 3))
    assert said_text(page) == "Once ·upon ⏎ [b] [a]"
    page.get_by_role("button", name="Start again").click()
    bars(page).nth(2).click()
    assert said_text(page) == "Once ·upon ⏎ [c]", "what came too late was kept"
    assert page.errors == []


@pytest.mark.browser
def test_a_refusal_is_shown_and_what_was_there_stays(browser):
    start = hand()
    page = live_page(browser, "next_token", start.data)
    bars(page).nth(2).focus()
    page.keyboard.press("Enter")
    tell(page, start.data | {"path": ["c"], "turn": 1, "error": "no <c> here"})
    assert alert(page) == "no <c> here"
    assert said_text(page) == "Once ·upon ⏎"
    assert status(page) == "Most likely next: “a” 0.500."
    assert page.evaluate("document.activeElement.dataset.token") == "c", "the bar keeps the focus"
    assert violations(page, "#there") == []
    page.keyboard.press("Enter")
    assert alert(page) == ""
    assert [m["turn"] for m in page.evaluate("window.sent")] == [1, 2], "asked anew"
    tell(page, answered(start, ["c"], 2))
    assert said_text(page) == "Once ·upon ⏎ [c]"
    assert page.errors == []


@pytest.mark.browser
def test_an_answer_does_not_fetch_the_focus_from_elsewhere(browser):
    start = hand()
    page = live_page(browser, "next_token", start.data)
    bars(page).nth(2).click()
    go_elsewhere(page)
    tell(page, answered(start, ["c"], 1))
    assert said_text(page) == "Once ·upon ⏎ [c]"
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"


@pytest.mark.browser
@pytest.mark.parametrize("refused", [False, True])
def test_a_live_view_shown_anew_goes_on_where_it_was(browser, refused):
    """Also after a refusal, and its next question counts on: the same data twice would reach no view."""
    start = hand()
    data = answered(start, ["c"], 4)
    if refused:
        data |= {"path": ["c", "next", "bad"], "turn": 5, "error": "no"}
    page = live_page(browser, "next_token", data)
    assert said_text(page) == "Once ·upon ⏎ [c]"
    bars(page).first.click()
    assert page.evaluate("window.sent") == [{"path": ["c", "next"], "turn": data["turn"] + 1}]
    assert page.errors == []


@pytest.mark.browser
def test_two_on_one_page_keep_to_themselves(browser):
    page = page_of(browser, hand()._repr_html_() * 2)
    page.locator(".ck").nth(1).locator(".bars button").first.click()
    page.mouse.move(0, 0)
    page.keyboard.press("Enter")
    texts = page.locator(".text").all_inner_texts()
    assert [text.split() for text in texts] == [["Once", "·upon", "⏎", "…"], ["Once", "·upon", "⏎", "a", "x", "…"]]
    page.keyboard.press("Backspace")
    assert page.locator("[aria-live]").nth(0).inner_text() == "Most likely next: “a” 0.500."
    assert page.locator("[aria-live]").nth(1).inner_text() == "After “a”, most likely next: “x” 1.000."
