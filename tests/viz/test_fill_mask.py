import json
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coursekit.viz.fill_mask import FillMask, words_and_signs
from coursekit.viz.tokens import visible
from tests.viz.page import (
    EVIL,
    accessible,
    alert,
    asked_of,
    best,
    fits,
    fits_a_phone,
    go_elsewhere,
    harmless,
    keeps_its_keys,
    largest,
    lefts,
    live_page,
    page_of,
    pointing_marks_the_token_in_both,
    refusing,
    shows_as_bars,
    status,
    table_rows,
    tell,
    told,
    violations,
    with_others,
)

VOCAB = ["the", "cat", "##s", "\n", "dog", "é", "mat", " on", "internationalization", ".", "a", "b"]
ONE = ["the", "[MASK]", "sat", "."]
BOTH = ["the", "[MASK]", "sat", "on", "a", "[MASK]", "."]


def model(tokens: list[str], seed: int = 0) -> list[list[tuple[str, float]]]:
    """A distribution over VOCAB for each mask, another one in every text, in no order."""
    n = tokens.count("[MASK]")
    rng = np.random.default_rng([seed, zlib.crc32("|".join(tokens).encode())])
    p = np.exp(rng.normal(size=(n, len(VOCAB))) * 1.5)
    return [list(zip(VOCAB, row / row.sum())) for row in p]


def two(tokens: list[str]) -> dict[str, list[list[tuple[str, float]]]]:
    return {"before": model(tokens, 1), "after": model(tokens, 2)}


HAND = [
    [("b", 0.25), ("a", 0.5), ("c", 0.125), ("d", 0.0625)],
    [("x", 0.0004), ("##y", 0.75)],
]


def hand(**change) -> FillMask:
    return FillMask(**{"tokens": BOTH, "guesses": HAND, "k": 3} | change)


def example(widget: FillMask, i: int = 0) -> dict:
    return widget.data["examples"][i]


def test_the_likeliest_tokens_and_what_is_left_by_hand():
    shown = example(hand())
    assert shown["tokens"] == BOTH
    assert shown["names"] == [""]
    assert shown["places"] == [
        [[[["a", 0.5], ["b", 0.25], ["c", 0.125]], 0.125]],
        [[[["##y", 0.75], ["x", 0.0004]], 0.2496]],
    ]
    named = example(hand(guesses={"early": HAND, "late": HAND[::-1]}))
    assert named["names"] == ["early", "late"]
    assert [[says[0][0] for says, _ in models] for models in named["places"]] == [["a", "##y"], ["##y", "a"]]


@given(st.data())
def test_the_numbers_are_the_given_ones(data):
    """To seven digits, each in its place and its model, of lists in any order that may be cut."""
    n, places, k, cut = (data.draw(st.integers(*ends)) for ends in ((1, 12), (1, 3), (1, 14), (0, 11)))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    p = np.exp(rng.normal(size=(2, places, n)) * 4)
    p = (p / p.sum(axis=2, keepdims=True)).astype(np.float32)[:, :, : n - min(cut, n - 1)]
    says = {name: [zip(VOCAB, row) for row in rows] for name, rows in zip(("one", "two"), p)}
    shown = example(FillMask(["[MASK]"] * places, says, k=k))["places"]
    for m in range(places):
        for i in range(2):
            pairs, rest = shown[m][i]
            order = np.argsort(-p[i, m], kind="stable")[:k]
            assert [token for token, _ in pairs] == [VOCAB[j] for j in order]
            np.testing.assert_allclose([value for _, value in pairs], p[i, m, order], rtol=5e-7)
            assert rest == pytest.approx(1 - p[i, m, order].sum(dtype=float), abs=2e-6)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tokens": "the [MASK]"}, r"tokens is one str, 'the \[MASK\]': give a list of tokens"),
        ({"tokens": ["the", 3]}, "tokens has the token 3: each must be str and not empty"),
        ({"tokens": ["a\ud83d"]}, r"tokens has a lone surrogate, U\+D83D"),
        ({"tokens": ["the", "cat"], "guesses": []}, r"tokens has no '\[MASK\]': put it in place of each token"),
        ({"tokens": ["[mask]"], "guesses": []}, r"tokens has no '\[MASK\]'"),
        ({"k": 0}, "k=0: between 1 and 50 bars"),
        ({"k": 51}, "k=51: between 1 and 50"),
        ({"guesses": {}}, r"guesses names no model: give a list for each \[MASK\], or \{name"),
        ({"guesses": None}, r"guesses is None: must hold a list of \(token, probability\) for each \[MASK\]"),
        ({"guesses": {"x": 5}}, r"guesses, x is 5: must hold a list"),
        ({"guesses": HAND[:1]}, r"guesses has 1 entries, but the text has 2 \[MASK\]: give a list of \(token, prob"),
        ({"guesses": {"x": HAND, "y": [*HAND, HAND[0]]}}, r"guesses, y has 3 entries, but the text has 2 \[MASK\]"),
        ({"guesses": HAND[0]}, r"guesses has 4 entries, but the text has 2 \[MASK\]"),  # the list of one place alone
        ({"guesses": HAND[0][:2]}, r"place 1: must be a list of \(token, probability\)"),
        ({"guesses": [HAND[0], []]}, "place 2: the list is empty"),
        ({"guesses": {"x": HAND, "y": [HAND[0], [("a", 2)]]}}, "place 2, y: the probability of 'a' is 2.0"),
        ({"guesses": [HAND[0], [("a", float("nan"))]]}, "place 2: the probability of 'a' is nan"),
        ({"guesses": [HAND[0], [("a", 0.5), ("a", 0.1)]]}, "place 2: the token 'a' is given twice"),
        ({"guesses": [[("a", 0.9), ("b", 0.2)], HAND[1]]}, "place 1: the probabilities add up to 1.1000, more than 1"),
        ({"guesses": [[("a", "likely")], HAND[1]]}, r"place 1: must be a list of \(token, probability\)"),
        ({"guesses": [[(b"a", 0.1)], HAND[1]]}, "place 1 has the token b'a': each must be str"),
        ({"tokens": ["x" * 950_000, *BOTH]}, "the texts take 1,.* bytes, more than 900,000: give fewer of them"),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says) as refused:
        hand(**change)
    assert "\n" not in str(refused.value)


def test_bad_examples():
    with pytest.raises(ValueError, match="examples must name at least one"):
        FillMask.of({})
    with pytest.raises(ValueError, match="the example 'a' is list: it must be FillMask"):
        FillMask.of({"a": HAND})
    with pytest.raises(ValueError, match="first='b': must be one of the examples, 'a'"):
        FillMask.of({"a": hand()}, first="b")


def test_examples_keep_what_is_theirs():
    several = FillMask.of({"one": FillMask(ONE, model(ONE), k=2), 7: hand()}, "Several", first=7)
    assert [each["name"] for each in several.data["examples"]] == ["one", "7"]
    assert several.data["chosen"] == 1
    assert [len(models[0][0]) for models in example(several)["places"]] == [2]
    assert example(several, 1) == {**example(hand()), "name": "7"}
    view = several.live(lambda tokens: model(tokens))
    assert len(asked_of(view, {"tokens": ["[MASK]"], "turn": 1})["answer"]["places"][0][0][0]) == 3, (
        "as many bars as most"
    )
    again = FillMask.of({"again": several})
    assert example(again) == {**example(hand()), "name": "again"}, "of several examples the chosen one"


def test_the_largest_page_stays_below_the_limit():
    def widget(n: int) -> FillMask:
        return FillMask(["<!--"] * n + ["[MASK]"], [[("<&<", 1)]])

    n = largest(widget, 400_000, "give fewer of them or a smaller k")
    assert 880_000 < len(widget(n)._repr_html_().encode()) < 1_000_000


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("In Texas they like to buy [MASK].", ["In", "Texas", "they", "like", "to", "buy", "[MASK]", "."]),
        ("[MASK][MASK], don't\n ask", ["[MASK]", "[MASK]", ",", "don't", "ask"]),
        ("naïve café—[mask]", ["naïve", "café", "—", "[", "mask", "]"]),
        (" ", []),
    ],
)
def test_words_and_signs(text, tokens):
    assert words_and_signs(text) == tokens


def test_a_kernel_answers_what_is_typed_and_what_is_masked():
    asked = []

    def fn(tokens):
        asked.append(tokens.copy())
        if "bad" in tokens:
            raise ValueError("no such word")
        answer = two(tokens)
        tokens.clear()  # what fn does with its list is its own affair
        return answer

    start = hand()
    before = json.dumps(start.data)
    view = start.live(fn)
    assert view.data == start.data
    data = asked_of(view, {"source": "a [MASK].\n", "turn": 1})
    assert asked == [["a", "[MASK]", "."]]
    expected = example(FillMask(["a", "[MASK]", "."], two(["a", "[MASK]", "."]), k=3))
    assert data["answer"] == {key: expected[key] for key in ("tokens", "names", "places")}
    assert (data["error"], data["asked"]) == ("", {"source": "a [MASK].\n", "turn": 1})
    assert data["examples"] == start.data["examples"]
    data = asked_of(view, {"tokens": ["[MASK]", "\n", "[MASK]"], "turn": 2})
    assert asked[1:] == [["[MASK]", "\n", "[MASK]"]], "tokens are not split again"
    assert data["shown"]["\n"] == "⏎"
    assert len(data["answer"]["places"]) == 2
    good = data["answer"]
    data = asked_of(view, {"tokens": ["bad", "[MASK]"], "turn": 3})
    assert (data["error"], data["answer"]) == ("no such word", good), "what was shown stays"
    data = asked_of(view, {"source": "  ", "turn": 4})
    assert data["error"] == "the text is empty: write a sentence, with [MASK] in place of a word"
    data = asked_of(view, {"source": "no mask", "turn": 5})
    assert data["answer"] == {"tokens": ["no", "mask"], "names": [""], "places": []}
    assert len(asked) == 3, "without a mask there is nothing to ask"
    assert json.dumps(start.data) == before
    other = start.live(fn, split=lambda text: [*text])
    assert "answer" not in other.data, "views of different models share nothing"
    asked_of(other, {"source": "ab", "turn": 1})
    assert other.data["answer"]["tokens"] == ["a", "b"]


def test_a_kernel_s_bad_answers_are_told_and_its_other_errors_not_hidden():
    view = hand().live(lambda tokens: HAND)
    data = asked_of(view, {"tokens": ["[MASK]"], "turn": 1})
    assert (
        data["error"]
        == "guesses has 2 entries, but the text has 1 [MASK]: give a list of (token, probability) for each"
    )
    with pytest.raises(ZeroDivisionError):
        asked_of(hand().live(lambda tokens: 1 / 0), {"tokens": ["[MASK]"], "turn": 1})


TWO = FillMask(BOTH, two(BOTH), title="Two <models>", k=5)
SEVERAL = FillMask.of({"one": FillMask(ONE, model(ONE)), "two": TWO, "hand": hand()}, "Several texts")
HEBREW = FillMask(["שלום", "[MASK]", "עולם"], [[("טוב", 0.5), ("مرحبا", 0.25)]])
ROUGH = FillMask(
    [EVIL, "\u202e", "[MASK]", "\ue000", "__proto__"],
    {"<b>bold</b>": [[(EVIL, 0.5), ("x" * 300, 0.25)]], EVIL: [[("\u202e", 0.5), ("__proto__", 0.1)]]},
    EVIL,
)
LONG = FillMask(["word"] * 400 + ["x" * 600, "[MASK]"], [[(f"{i}" * 40, 0.02) for i in range(50)]], k=50)
WIDGETS = {"two": TWO, "several": SEVERAL, "hebrew": HEBREW, "rough": ROUGH, "long": LONG}


def side(page, place: int = 0, m: int = 0):
    return page.locator(".place").nth(place).locator(".side").nth(m)


def bars(page, place: int = 0, m: int = 0):
    return side(page, place, m).get_by_role("button")


def said_text(page) -> str:
    """The tokens in the text box; in brackets those that were filled in."""
    spans = page.locator(".text > *").evaluate_all(
        """all => all.map(el => {
          const shown = el.firstChild.textContent;
          return el.classList.contains('filled') ? `(${shown})` : shown;
        })"""
    )
    return " ".join(spans)


@pytest.mark.browser
def test_every_number_is_the_models(browser):
    page = page_of(browser, TWO._repr_html_())
    for m, (name, places) in enumerate(two(BOTH).items()):
        for i, pairs in enumerate(places):
            assert side(page, i, m).locator(".name").inner_text() == name
            shows_as_bars(side(page, i, m), best(pairs, 5))
    assert page.locator(".which").all_inner_texts() == ["[MASK] 1", "[MASK] 2"]
    assert page.requests == ["http://ck.test/"]
    assert page.errors == []


@pytest.mark.browser
def test_a_click_fills_a_place_and_another_takes_it_out(browser):
    page = page_of(browser, hand()._repr_html_())
    assert said_text(page) == "the [MASK] sat on a [MASK] ."
    likeliest = "Likeliest: [MASK] 1: “a” 0.500; [MASK] 2: “##y” 0.750. Click a bar to fill it in."
    assert status(page) == likeliest
    bars(page, 1).first.click()
    assert said_text(page) == "the [MASK] sat on a (##y) ."
    assert status(page) == "“##y” stands in [MASK] 2 now. Click it again to take it out."
    assert [b.get_attribute("aria-pressed") for b in bars(page, 1).all()] == ["true", "false"]
    assert [b.get_attribute("aria-pressed") for b in bars(page, 0).all()] == ["false"] * 3
    bars(page, 0).nth(1).click()
    bars(page, 0).nth(2).click()
    assert said_text(page) == "the (c) sat on a (##y) .", "another bar takes the place"
    bars(page, 0).nth(2).click()
    assert said_text(page) == "the [MASK] sat on a (##y) ."
    page.locator(".text .filled").click()
    assert said_text(page) == "the [MASK] sat on a [MASK] ."
    assert page.locator(".bars [aria-pressed=true]").count() == 0
    assert page.evaluate("document.activeElement.dataset.place") == "1", "the place keeps the focus"
    assert page.errors == []


@pytest.mark.browser
def test_the_same_token_in_another_place_is_another_bar(browser):
    page = page_of(browser, FillMask(["[MASK]", "[MASK]"], [[("a", 0.5), ("b", 0.1)]] * 2)._repr_html_())
    bars(page, 0).first.click()
    assert [[b.get_attribute("aria-pressed") for b in bars(page, m).all()] for m in (0, 1)] == [
        ["true", "false"],
        ["false", "false"],
    ]


@pytest.mark.browser
def test_keyboard_alone_is_enough(browser):
    page = page_of(browser, TWO._repr_html_())

    def focused() -> list:
        return page.evaluate(
            """() => { const el = document.activeElement; const sides = [...document.querySelectorAll('.side')];
            return [sides.findIndex(s => s.contains(el)), el.dataset.token ?? el.dataset.place]; }"""
        )

    shown = [[best(pairs, 5) for pairs in places] for places in zip(*two(BOTH).values())]  # [place][model]
    page.keyboard.press("Tab")
    assert focused() == [-1, "0"], "the text is one stop"
    page.keyboard.press("ArrowRight")
    assert focused() == [-1, "1"]
    page.keyboard.press("Enter")  # a mask leads to its bars
    assert focused() == [2, shown[1][0][0][0]]
    for key, at, i in [
        ("ArrowDown", 2, 1),
        ("ArrowRight", 3, 1),
        ("ArrowRight", 3, 1),
        ("End", 3, 4),
        ("ArrowDown", 3, 4),
        ("ArrowLeft", 2, 4),
        ("ArrowLeft", 1, 4),
        ("ArrowUp", 1, 3),
        ("Home", 1, 0),
        ("ArrowUp", 1, 0),
    ]:
        page.keyboard.press(key)
        assert focused() == [at, shown[at // 2][at % 2][i][0]]
    page.keyboard.press("Enter")
    assert said_text(page).startswith(f"the ({visible(shown[0][1][0][0])}) ")
    assert focused() == [1, shown[0][1][0][0]]
    page.keyboard.press("Tab")
    assert focused()[0] == 2, "each side is one stop"


@pytest.mark.browser
def test_keys_stay_in_the_widget_and_others_reach_the_notebook(browser):
    page = page_of(browser, TWO._repr_html_())
    keeps_its_keys(page, bars(page).first, ["ArrowDown", "Home", "ArrowRight"])


@pytest.mark.browser
def test_pointing_finds_the_token_in_the_other_model(browser):
    page = page_of(browser, TWO._repr_html_())
    shown = [best(places[1], 5) for places in two(BOTH).values()]
    says = "“{token}” as [MASK] 2: before {p}, after {q}."
    pointing_marks_the_token_in_both(page, [side(page, 1, m) for m in (0, 1)], shown, says)


@pytest.mark.browser
def test_texts_to_choose_from_need_no_kernel(browser):
    page = page_of(browser, SEVERAL._repr_html_())
    buttons = page.get_by_role("group", name="Texts").get_by_role("button")
    assert buttons.all_inner_texts() == ["one", "two", "hand"]
    assert page.locator(".which").count() == 0, "one place needs no number"
    assert page.locator(".text button").all_inner_texts() == ["[MASK]"]
    bars(page).first.click()
    for i, (places, models) in enumerate([(1, 1), (2, 2), (2, 1)]):
        buttons.nth(i).focus()
        page.keyboard.press("Enter")
        assert [b.get_attribute("aria-pressed") for b in buttons.all()] == [str(k == i).lower() for k in range(3)]
        assert page.locator(".place").count() == places
        assert side(page).count() == 1
        assert page.locator(".side").count() == places * models
        assert "(" not in said_text(page), "what was filled in is not kept"
        assert page.evaluate("document.activeElement.textContent") == buttons.nth(i).inner_text()
    assert page.get_by_role("textbox").count() == 0
    assert page.get_by_role("button", name="Back").count() == 0
    assert page.errors == []


@pytest.mark.browser
def test_text_is_text_and_nothing_is_fetched(browser):
    page = page_of(browser, ROUGH._repr_html_())
    assert page.locator(".ck strong").inner_text() == EVIL
    assert said_text(page) == f"{visible(EVIL)} U+202E [MASK] U+E000 __proto__"
    assert page.locator(".name").all_inner_texts() == ["<b>bold</b>", EVIL]
    assert bars(page).locator(".token").all_inner_texts() == [visible(EVIL), "x" * 300]
    assert bars(page, 0, 1).locator(".token").all_inner_texts() == ["U+202E", "__proto__"]
    bars(page).first.click()
    assert f"({visible(EVIL)})" in said_text(page)
    harmless(page, "img, .ck b")


@pytest.mark.browser
@pytest.mark.parametrize("scripts", [True, False])
def test_right_to_left_tokens_keep_to_themselves(browser, scripts):
    page = page_of(browser, HEBREW._repr_html_(), scripts=scripts)
    shown = page.locator(".text > *" if scripts else "p bdi").all()
    places = [token.bounding_box()["x"] for token in shown]
    assert places == sorted(places)
    assert len(places) == 3
    if scripts:
        bars(page).first.hover()
        assert status(page) == "“טוב”: 0.500."
        word, number = lefts(page, "[aria-live]", ["טוב", "0.500"])
        assert word < number


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", WIDGETS)
def test_accessible_in_both_themes(browser, name, scheme):
    page = accessible(browser, WIDGETS[name], scheme)
    bars(page).first.focus()
    page.keyboard.press("Enter")
    assert "(" in said_text(page)
    assert violations(page) == []
    assert page.errors == []


@pytest.mark.browser
def test_a_reader_hears_place_model_token_and_probability(browser):
    page = page_of(browser, TWO._repr_html_())
    token, p = best(two(BOTH)["after"][1], 5)[1]
    group = page.get_by_role("group", name="Likeliest in place of [MASK] 2, after")
    assert group.get_by_role("button", name=f"{visible(token)} {p:.3f}", exact=True).count() == 1
    page = page_of(browser, FillMask(ONE, model(ONE))._repr_html_())
    assert page.get_by_role("group", name="Likeliest in place of [MASK]", exact=True).count() == 1


@pytest.mark.browser
@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("name", WIDGETS)
def test_a_phone_is_wide_enough(browser, name, scripts):
    fits_a_phone(browser, WIDGETS[name], scripts, lambda page: bars(page).first.press("Enter"))


@pytest.mark.browser
def test_without_scripts_texts_and_numbers_stand_there(browser):
    page = page_of(browser, SEVERAL._repr_html_(), scripts=False)
    assert page.locator(".ck").count() == 0
    both = "the [MASK] sat on a [MASK] ."
    assert page.locator("main p").all_inner_texts() == [
        "Several texts", "one: the [MASK] sat .", f"two: {both}", f"hand: {both}"
    ]  # fmt: skip
    captions = ["[MASK]", "[MASK] 1, before", "[MASK] 1, after", "[MASK] 2, before", "[MASK] 2, after"]
    assert page.locator("caption").all_inner_texts() == [*captions, "[MASK] 1", "[MASK] 2"]
    tables = [model(ONE)[0], *(two(BOTH)[name][m] for m in (0, 1) for name in ("before", "after"))]
    for n, (pairs, k) in enumerate(zip(tables, [8, 5, 5, 5, 5])):
        assert table_rows(page.locator("table").nth(n)) == with_others(best(pairs, k))
    page = page_of(browser, FillMask(["<i>", "[MASK]"], [[("<b>", 0.0001)]], EVIL)._repr_html_(), scripts=False)
    assert page.locator("main p").all_inner_texts() == [EVIL, "<i> [MASK]"]
    assert page.locator("tbody").inner_text().split("\n") == ["<b>\t< 0.001", "all others\t1.000"]


def live(browser, start: FillMask, fn=two):
    """A page and the kernel's side of it."""
    view = start.live(fn)
    return live_page(browser, "fill_mask", view.data), view


@pytest.mark.browser
def test_live_a_click_on_a_word_masks_it_and_asks(browser):
    page, view = live(browser, FillMask(ONE, two(ONE), k=8))
    page.locator(".text").get_by_role("button", name="the", exact=True).click()
    tokens = ["[MASK]", "[MASK]", "sat", "."]
    assert page.evaluate("window.sent") == [{"tokens": tokens, "turn": 1}]
    assert status(page) == "Asking …"
    assert said_text(page) == "the [MASK] sat .", "until the answer comes"
    told(page, view)
    assert said_text(page) == "[MASK] [MASK] sat ."
    says = [dict(best(places[0], 8)) for places in two(tokens).values()]
    p, q = (f"{s['the']:.3f}" if "the" in s else "has no bar for it" for s in says)
    assert status(page) == f"Here stood “the” as [MASK] 1: before {p}, after {q}."
    assert bars(page, 1, 1).locator(".token").first.inner_text() == visible(best(two(tokens)["after"][1], 1)[0][0])
    assert page.evaluate("document.activeElement === document.querySelector('.bars button')")
    assert page.get_by_role("textbox").input_value() == "[MASK] [MASK] sat ."
    page.get_by_role("button", name="Back").click()
    assert said_text(page) == "the [MASK] sat ."
    assert page.get_by_role("button", name="Back").is_disabled()
    page.locator(".text").get_by_role("button", name="the", exact=True).click()
    assert said_text(page) == "[MASK] [MASK] sat ."
    assert len(page.evaluate("window.sent")) == 1, "what is known is not asked again"
    assert page.errors == []


@pytest.mark.browser
def test_live_a_mask_may_be_typed_in_small_letters(browser):
    page, _ = live(browser, FillMask(ONE, two(ONE), k=8))
    page.get_by_role("textbox").fill("The [mask] barked at the [Mask].")
    page.keyboard.press("Enter")
    assert page.evaluate("window.sent") == [{"source": "The [MASK] barked at the [MASK].", "turn": 1}]


@pytest.mark.browser
def test_live_filling_one_of_two_places_asks_about_the_other(browser):
    page, view = live(browser, FillMask(BOTH, two(BOTH), k=4))
    token = best(two(BOTH)["after"][0], 4)[2][0]
    bars(page, 0, 1).nth(2).click()
    filled = [token if i == 1 else t for i, t in enumerate(BOTH)]
    assert page.evaluate("window.sent") == [{"tokens": filled, "turn": 1}]
    told(page, view)
    assert said_text(page) == f"the ({visible(token)}) sat on a [MASK] ."
    assert page.locator(".place").count() == 1
    assert bars(page).locator(".token").all_inner_texts() == [visible(t) for t, _ in best(two(filled)["before"][0], 4)]
    last = best(two(filled)["before"][0], 4)[0][0]
    bars(page).first.click()
    assert said_text(page) == f"the ({visible(token)}) sat on a ({visible(last)}) ."
    assert len(page.evaluate("window.sent")) == 1, "nothing is left to ask"
    page.locator(".text").get_by_role("button", name="sat").click()
    full = [last if i == 5 else "[MASK]" if i == 2 else t for i, t in enumerate(filled)]
    assert page.evaluate("window.sent.at(-1)") == {"tokens": full, "turn": 2}, "what was filled in is kept"
    told(page, view)
    assert said_text(page) == f"the ({visible(token)}) [MASK] on a ({visible(last)}) ."
    page.locator(".text .filled").first.click()  # it is a word now: masked again
    masked = [*BOTH[:2], "[MASK]", *full[3:]]
    assert page.evaluate("window.sent.at(-1)") == {"tokens": masked, "turn": 3}
    told(page, view)
    assert said_text(page) == f"the [MASK] [MASK] on a ({visible(last)}) ."
    for text in [f"the ({visible(token)}) [MASK] on", f"the ({visible(token)}) sat on", "the [MASK] sat on a [MASK]"]:
        page.get_by_role("button", name="Back").click()
        assert said_text(page).startswith(text)
    assert page.errors == []


@pytest.mark.browser
def test_live_typing_asks_once_and_a_refusal_leaves_what_was_there(browser):
    page, view = live(browser, SEVERAL, refusing(model))
    field = page.get_by_role("textbox", name="Text")
    assert field.input_value() == "the [MASK] sat ."
    field.press("Enter")
    assert page.evaluate("window.sent") == [], "it is what is shown"
    field.fill("dogs [MASK] cats")
    field.press("ArrowLeft")
    field.press("Enter")
    assert page.evaluate("window.sent") == [{"source": "dogs [MASK] cats", "turn": 1}]
    told(page, view)
    assert said_text(page) == "dogs [MASK] cats"
    assert page.evaluate("document.activeElement.value") == "dogs [MASK] cats", "the field keeps text and focus"
    token, p = best(model(["dogs", "[MASK]", "cats"])[0], 1)[0]
    likeliest = f"Likeliest: “{visible(token)}” {p:.3f}. Click a bar to fill it in, a word to mask it."
    assert status(page) == likeliest
    field.fill("bad [MASK]")
    page.get_by_role("button", name="Guess").click()
    told(page, view)
    assert alert(page) == "no <bad> here"
    assert said_text(page) == "dogs [MASK] cats"
    assert status(page) == likeliest
    assert violations(page, "#there") == []
    page.get_by_role("button", name="hand").click()
    field.fill("bad [MASK] again")
    field.press("Enter")
    told(page, view)
    assert said_text(page) == "the [MASK] sat on a [MASK] .", "not what was answered before"
    field.fill("nothing masked")
    field.press("Enter")
    told(page, view)
    assert alert(page) == ""
    assert status(page) == "Nothing is masked here: click a word to mask it."
    assert page.locator(".place").count() == 0
    assert violations(page, "#there") == []
    page.locator(".text").get_by_role("button", name="masked").click()
    told(page, view)
    assert said_text(page) == "nothing [MASK]"
    field.fill("dogs [MASK] cats")
    field.press("Enter")
    assert said_text(page) == "dogs [MASK] cats"
    assert len(page.evaluate("window.sent")) == 5, "what is known is not asked again"
    page.get_by_role("button", name="hand").click()
    assert field.input_value() == "the [MASK] sat on a [MASK] ."
    assert page.errors == []


@pytest.mark.browser
def test_live_pieces_of_words_are_typed_as_words(browser):
    page, _ = live(browser, FillMask(["dog", "##s", "[MASK]"], model(["dog", "##s", "[MASK]"])))
    field = page.get_by_role("textbox", name="Text")
    assert field.input_value() == "dogs [MASK]"
    field.press("Enter")
    assert page.evaluate("window.sent") == [], "what was not changed is not split anew"


@pytest.mark.browser
def test_live_a_late_answer_of_an_earlier_question_is_passed_over(browser):
    page, view = live(browser, SEVERAL)
    page.locator(".text").get_by_role("button", name="sat").click()
    first = page.evaluate("window.sent.at(-1)")
    page.locator(".text").get_by_role("button", name="the").click()  # another question meanwhile
    tell(page, asked_of(view, first))
    assert said_text(page) == "the [MASK] sat ."
    assert status(page) == "Asking …"
    told(page, view)
    assert said_text(page) == "[MASK] [MASK] sat ."
    page.locator(".text").get_by_role("button", name=".", exact=True).click()
    page.get_by_role("button", name="hand").click()  # the question is withdrawn
    told(page, view)
    assert said_text(page) == "the [MASK] sat on a [MASK] ."
    assert page.errors == []


@pytest.mark.browser
def test_live_an_answer_does_not_fetch_the_focus_from_elsewhere(browser):
    page, view = live(browser, SEVERAL)
    page.locator(".text").get_by_role("button", name="sat").click()
    go_elsewhere(page)
    told(page, view)
    assert said_text(page) == "the [MASK] [MASK] ."
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"


@pytest.mark.browser
@pytest.mark.parametrize("refused", [False, True])
def test_a_live_view_shown_anew_goes_on_where_it_was(browser, refused):
    view = SEVERAL.live(refusing(model))
    asked_of(view, {"source": "dogs [MASK]", "turn": 4})
    if refused:
        asked_of(view, {"source": "bad [MASK]", "turn": 5})
    page = live_page(browser, "fill_mask", view.data)
    assert said_text(page) == "dogs [MASK]"
    page.locator(".text").get_by_role("button", name="dogs").click()
    assert page.evaluate("window.sent") == [{"tokens": ["[MASK]", "[MASK]"], "turn": 5 + refused}]
    assert page.errors == []


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 900])
def test_live_with_a_field_is_accessible_and_fits(browser, width):
    view = SEVERAL.live(two)
    page = live_page(browser, "fill_mask", view.data, width=width)
    assert violations(page, "#there") == []
    fits(page, width)
    page.locator(".text").get_by_role("button", name="the").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.evaluate("window.sent.at(-1).tokens") == ["the", "[MASK]", "[MASK]", "."]


@pytest.mark.browser
def test_two_on_one_page_keep_to_themselves(browser):
    page = page_of(browser, hand()._repr_html_() * 2)
    page.locator(".ck").nth(1).locator(".bars button").first.click()
    page.mouse.move(0, 0)
    page.keyboard.press("ArrowDown")
    texts = page.locator(".text").all_inner_texts()
    assert ["[MASK]" in text.split()[1] for text in texts] == [True, False]
    assert page.locator("[aria-live]").nth(0).inner_text().startswith("Likeliest: ")
    assert page.locator("[aria-live]").nth(1).inner_text() == "“b” as [MASK] 1: 0.250."
