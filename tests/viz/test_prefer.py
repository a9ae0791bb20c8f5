import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from coursekit.viz.prefer import Prefer
from coursekit.viz.widget import source
from tests.viz.page import (
    EVIL,
    accessible,
    fits_a_phone,
    go_elsewhere,
    harmless,
    hear,
    numbers,
    page_of,
    status,
    table_rows,
    violations,
)

FEATURES = {
    "right": ("right answers", "wrong answers"),
    "words": ("long answers", "short answers"),
    "courtesies": ("courtesies", "answers without courtesies"),
}


def pairs(n: int = 12, seed: int = 0, features: int = 3) -> list:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 9, size=(n, 2, features)) * [1, 10, 0.1][:features]
    return [(f"request {i}", (f"one {i}", a), (f"other {i}", b)) for i, (a, b) in enumerate(values)]


def prefer(**change) -> Prefer:
    return Prefer(**{"pairs": pairs(), "features": FEATURES} | change)


def fitted(x: np.ndarray, picks: list[int], ridge: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Weights and standard errors of logistic regression, by a general minimiser."""
    d = x[: len(picks)] * (1 - 2 * np.array(picks))[:, None] if picks else np.zeros((0, x.shape[1]))

    def loss(w):
        return np.logaddexp(0, -d @ w).sum() + ridge / 2 * w @ w, ridge * w - d.T @ expit(-d @ w)

    def curvature(w):
        p = expit(d @ w)
        return d.T @ (d * (p * (1 - p))[:, None]) + ridge * np.eye(x.shape[1])

    w = minimize(loss, np.zeros(x.shape[1]), jac=True, hess=curvature, method="trust-exact", options={"gtol": 1e-11}).x
    return w, np.sqrt(np.diag(np.linalg.inv(curvature(w))))


def xs(widget: Prefer) -> np.ndarray:
    return np.array([pair["x"] for pair in widget.data["pairs"]])


# --- Python ---------------------------------------------------------------------------------------------------


def test_differences_are_scaled_by_hand():
    """Right differs by 1 and by 0, root mean square sqrt(1/2); words by -3 and by 4, sqrt(25/2)."""
    given = [("r", ("a", [1, 2]), ("b", [0, 5])), ("s", ("c", [1, 6]), ("d", [1, 2]))]
    expected = np.array([[1, -3], [0, 4]]) / np.sqrt([1 / 2, 25 / 2])
    two = {name: FEATURES[name] for name in ("right", "words")}
    for seed in range(8):
        for pair, names, x in zip(Prefer(given, two, seed=seed).data["pairs"], ["ab", "cd"], expected):
            turned = pair["answers"] == list(names[::-1])
            assert turned or pair["answers"] == list(names)
            np.testing.assert_allclose(pair["x"], -x if turned else x, rtol=1e-12)


def test_the_order_is_drawn_from_the_seed():
    def order(seed):
        return [pair["answers"][0].startswith("one") for pair in prefer(pairs=pairs(200), seed=seed).data["pairs"]]

    assert order(0) == order(0) != order(1)
    assert 70 < sum(order(0)) < 130
    assert [pair["request"] for pair in prefer(seed=3).data["pairs"]] == [f"request {i}" for i in range(12)]


ONE = ("r", ("a", [1, 2, 3]), ("b", [0, 0, 0]))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"ridge": 0}, "ridge=0: must be above 0, else a first choice would make weights infinite"),
        ({"ridge": float("inf")}, "ridge=inf: must be above 0"),
        ({"features": {}}, "features must name at least one"),
        ({"features": ["right"]}, "features must name at least one"),
        ({"features": {"right": "ab"}}, r"the feature 'right' has 'ab': must be \(to like more of it, to like less"),
        ({"features": {"right": ("a", 3)}}, r"the feature 'right' has \('a', 3\)"),
        ({"features": {"right": ("a", "\ud83d")}}, r"the feature 'right' has a lone surrogate"),
        ({"pairs": []}, "pairs is empty: give at least one"),
        ({"pairs": [ONE, ("r", ("a", [1, 2, 3]))]}, r"pair 1: must be \(request, answer, answer\)"),
        ({"pairs": [("r", "ab", "cd")]}, r"pair 0: must be \(request, answer, answer\), an answer being"),
        ({"pairs": [("r", (3, [1, 2, 3]), ONE[1])]}, "pair 0 has 3: request and answers must be str"),
        ({"pairs": [("\ud83d", *ONE[1:])]}, "pair 0 has a lone surrogate"),
        (
            {"pairs": [("r", ("a", [1, 2]), ONE[1])]},
            r"pair 0: the values of 'a' are \[1.0, 2.0\], but must be a finite",
        ),
        ({"pairs": [("r", ("a", [1, 2, float("nan")]), ONE[1])]}, "must be a finite number for each of 'right', 'wo"),
        ({"pairs": [("r", ("a", [1, 2, 3]), ("b", [0, 2, 1]))]}, "the feature 'words' is the same in both answers of"),
        ({"pairs": [("r" * 950_000, *ONE[1:])]}, "the pairs take .* bytes, more than 900,000: give fewer or shorter"),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says):
        prefer(**change)


# --- in the browser -------------------------------------------------------------------------------------------

ROUGH = Prefer(
    [(EVIL, ("x" * 400, [1, 2]), (EVIL, [0, 3])), ("x" * 400 + "\u202e", ("", [3, 1]), ("שלום", [1, 9]))],
    {EVIL: (EVIL, "x" * 90), "x" * 90: ("y" * 90, EVIL)},
    EVIL,
)
WIDGETS = {"plain": prefer(), "rough": ROUGH, "single": prefer(pairs=pairs(1))}


def shown_fit(page) -> tuple[np.ndarray, np.ndarray]:
    """Weights and standard errors, as exact as the page has them."""
    each = page.locator(".feature .number").evaluate_all("all => all.map(x => x.title.split(' ± ').map(Number))")
    return tuple(np.array(each).T)


def predicted(page) -> float:
    """The probability of A, from the length of its bar."""
    width = page.locator(".guess i").first.evaluate("bar => bar.style.width")
    return float(width.removesuffix("%")) / 100


@pytest.mark.browser
@pytest.mark.parametrize(("ridge", "seed"), [(1.0, 0), (0.001, 1), (30.0, 2)])
def test_after_each_choice_the_fit_is_that_of_logistic_regression(browser, ridge, seed):
    """Also with hardly a penalty, where the first choices are separable and the weights large."""
    widget = prefer(pairs=pairs(12, seed), ridge=ridge, seed=seed)
    x, rng = xs(widget), np.random.default_rng(seed)
    page = page_of(browser, widget._repr_html_())
    picks, right, asked = [], 0, 0
    for i in range(12):
        weights, errors = fitted(x, picks, ridge)
        found = shown_fit(page)
        np.testing.assert_allclose(found[0], weights, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(found[1], errors, rtol=1e-5)
        shown = page.locator(".feature .number").all_inner_texts()
        np.testing.assert_allclose([numbers([s.split(" ± ")[0]])[0] for s in shown], weights, atol=0.00501)
        np.testing.assert_allclose([float(s.split(" ± ")[1]) for s in shown], errors, atol=0.00501)
        p = expit(x[i] @ weights)
        assert predicted(page) == pytest.approx(p, abs=1e-6)
        pick = int(rng.random() < 0.5)
        if picks:
            asked, right = asked + 1, right + ((p > 0.5) == (pick == 0))
        page.get_by_role("button", name="AB"[pick]).and_(page.locator(".answers button")).click()
        picks.append(pick)
        score = page.locator(".score").inner_text()
        coin = f"{asked / 2:.1f}".removesuffix(".0")
        told = f"Guessed before you chose: {right} of {asked} right; a coin would get {coin}."
        assert score.startswith(told if asked else "It has not guessed yet.")
    weights, errors = fitted(x, picks, ridge)
    found = shown_fit(page)
    np.testing.assert_allclose(found[0], weights, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found[1], errors, rtol=1e-5)
    marks = page.locator(".marks span").all_inner_texts()
    assert marks[0] == "–", "before the first choice there is nothing to guess from"
    assert (marks.count("✓"), marks.count("✗")) == (right, 11 - right)
    assert page.errors == []


@pytest.mark.browser
def test_bars_are_as_long_as_the_weights(browser):
    widget = prefer()
    page = page_of(browser, widget._repr_html_())
    for key in "ABBA":
        page.locator(".answers button").first.focus()
        page.keyboard.press(key)
    weights, errors = fitted(xs(widget), [0, 1, 1, 0])
    reach = max(2, np.ceil((abs(weights) + errors).max()))
    for track, w, error in zip(page.locator(".track").all(), weights, errors):
        frame = track.evaluate(
            "el => { const box = el.getBoundingClientRect(); return [box.left + 1, box.width - 2]; }"
        )

        def value(x, frame=frame):
            return ((x - frame[0]) / frame[1] * 2 - 1) * reach

        places = track.locator("i").evaluate_all(
            "all => all.map(x => { const box = x.getBoundingClientRect(); return [box.left, box.right]; })"
        )
        ends = sorted([0, w])
        np.testing.assert_allclose([value(x) for x in places[0]], ends, atol=0.01)
        np.testing.assert_allclose([value(x) for x in places[2]], [w - error, w + error], atol=0.01)
        assert ("minus" in track.locator("i").first.get_attribute("class")) == (w < 0)


@pytest.mark.browser
def test_the_prediction_comes_before_the_choice(browser):
    widget = prefer()
    x = xs(widget)
    page = page_of(browser, widget._repr_html_())
    assert page.locator(".guess").inner_text().split("\n") == ["No guess: A 50 %", "B 50 %"]
    assert status(page) == "Pair 1 of 12: it has no guess."
    page.get_by_role("button", name="A one").or_(page.get_by_role("button", name="A other")).click()
    p = expit(x[1] @ fitted(x, [0])[0])
    better, sure = "AB"[int(p < 0.5)], f"{100 * max(p, 1 - p):.0f} %"
    assert status(page) == f"You chose A; it had no guess. Pair 2 of 12: it expects {better}, {sure}."
    assert page.locator(".guess").inner_text().split("\n") == [
        f"It expects A {100 * p:.0f} %",
        f"B {100 - round(100 * p)} %",
    ]
    assert page.locator(".request").inner_text() == "request 1"
    page.keyboard.press("B")
    hit = "right" if better == "B" else "wrong"
    assert status(page).startswith(f"You chose B; it had expected {better}, {sure}: {hit}. Pair 3 of 12: it expects ")


@pytest.mark.browser
def test_keys_choose_and_what_was_chosen_can_be_taken_back(browser):
    page = page_of(browser, prefer()._repr_html_())
    hear(page)
    states = []
    page.locator(".answers button").first.focus()
    for key in ["a", "ArrowRight", "B", "ArrowLeft"]:
        states.append([page.locator(".feature").all_inner_texts(), page.locator(".score").inner_text()])
        page.keyboard.press(key)
        assert status(page).startswith(f"You chose {'A' if key in ('a', 'ArrowLeft') else 'B'}; ")
    page.keyboard.press("Control+b")
    page.keyboard.press("ArrowDown")
    assert page.locator(".place").inner_text() == "Pair 5 of 12", "a key with Control is the browser's"
    assert page.evaluate("window.heard") == ["Control", "b", "ArrowDown"], "the others are kept from the notebook"
    for state in reversed(states):
        page.get_by_role("button", name="Undo").click()
        assert status(page).startswith("Taken back. Pair ")
        assert [page.locator(".feature").all_inner_texts(), page.locator(".score").inner_text()] == state
    assert page.get_by_role("button", name="Undo").is_disabled()
    assert page.evaluate("document.activeElement.closest('.answers') !== null"), "the focus stays in the widget"
    for _ in range(12):
        page.keyboard.press("a")
    assert page.locator(".place").inner_text() == "All 12 pairs chosen"
    assert page.locator(".answers").is_hidden()
    page.keyboard.press("b")
    assert page.locator(".marks span").all_inner_texts().count("–") == 1
    assert page.evaluate("document.activeElement.textContent") == "Start again"
    page.keyboard.press("Enter")
    assert status(page) == "Started again. Pair 1 of 12: it has no guess."
    assert page.locator(".answers").is_visible()
    assert page.locator(".belief").inner_text() == "Nothing yet: choose, and it learns."


def words_of(weights: np.ndarray, errors: np.ndarray) -> str:
    """The sentence, by the rules: 1.64 standard errors for a claim, 1 for a guess; little is |w| + error < 0.5."""
    ratio = abs(weights) / errors
    names, said = list(FEATURES), {"sure": [], "maybe": [], "small": [], "open": []}
    for i in np.argsort(-ratio, kind="stable"):
        kind = "sure" if ratio[i] >= 1.64 else "maybe" if ratio[i] >= 1 else "open"
        if kind == "open" and abs(weights[i]) + errors[i] < 0.5:
            kind = "small"
        said[kind].append(FEATURES[names[i]][int(weights[i] < 0)] if kind in ("sure", "maybe") else names[i])
    said = {kind: " and ".join([", ".join(some[:-1]), some[-1]] if some[1:] else some) for kind, some in said.items()}
    sure, maybe, small, unclear = said.values()
    also = "also " if sure else ""
    counts = "count" if " and " in small else "counts"
    return " ".join(
        text
        for text, there in (
            (f"You seem to like {sure}.", sure),
            (f"Perhaps you {also}like {maybe}.", maybe),
            (f"{small} hardly {counts}.", small),
            (f"Too few choices to tell: {unclear}.", unclear),
        )
        if there
    )


@pytest.mark.browser
def test_in_words_what_it_believes(browser):
    page = page_of(browser, f"<script type=module>{source('prefer')}\nwindow.inWords = inWords;</script>")
    features = prefer().data["features"]

    def said(weights, errors):
        fit = {"weights": list(weights), "errors": list(errors)}
        return page.evaluate("([features, fit]) => window.inWords(features, fit)", [features, fit])

    assert said([0.1, -1.5, 0.9], [0.3, 0.5, 0.6]) == (
        "You seem to like short answers. Perhaps you also like courtesies. right hardly counts."
    )
    assert said([0.1, 0, 2], [0.3, 0.2, 1]) == "You seem to like courtesies. right and words hardly count."
    assert (
        said([1.5, 1, 0.5], [1, 2, 3])
        == "Perhaps you like right answers. Too few choices to tell: words and courtesies."
    )
    rng = np.random.default_rng(0)
    for _ in range(100):
        weights, errors = rng.normal(size=3), rng.uniform(0.1, 1, size=3)
        assert said(weights, errors) == words_of(weights, errors)
    for ratio in (0.99, 1.0, 1.01, 1.63, 1.64, 1.65, 1.8):
        for error in (0.2, 0.25, 1.0):
            weights, errors = np.array([ratio * error, -ratio * error, 0.0]), np.full(3, error)
            assert said(weights, errors) == words_of(weights, errors)


@pytest.mark.browser
def test_at_the_end_it_says_so(browser):
    widget = prefer()
    picks = [int(x[1] > 0) for x in xs(widget)]  # the shorter one each time
    page = page_of(browser, widget._repr_html_())
    page.locator(".answers button").first.focus()
    for pick in picks:
        page.keyboard.press("ab"[pick])
    shown = page.locator(".belief").inner_text()
    assert shown == words_of(*fitted(xs(widget), picks))
    assert "like short answers" in shown
    assert status(page).endswith(f"All are chosen. {shown}")


@pytest.mark.browser
def test_one_and_the_other_answer_stand_where_they_should(browser):
    """A choice counts for the answer that was shown in that place, whatever the seed."""
    given = [(f"r{i}", ("short", [1]), ("long", [9])) for i in range(6)]
    page = page_of(browser, Prefer(given, {"words": ("long answers", "short answers")}, seed=4)._repr_html_())
    places = []
    for _ in range(6):
        texts = page.locator(".answers span").all_inner_texts()
        places.append(texts.index("short"))
        page.locator(".answers button").nth(places[-1]).click()
    assert set(places) == {0, 1}
    assert page.locator(".belief").inner_text() == "You seem to like short answers."
    assert page.locator(".marks span").all_inner_texts() == ["–", *["✓"] * 5]


@pytest.mark.browser
def test_two_on_one_page_keep_to_themselves(browser):
    page = page_of(browser, prefer()._repr_html_() * 2)
    page.locator(".answers").nth(1).locator("button").first.focus()
    page.keyboard.press("a")
    assert page.locator(".place").all_inner_texts() == ["Pair 1 of 12", "Pair 2 of 12"]
    go_elsewhere(page)
    page.keyboard.type("ab")
    assert page.locator(".place").all_inner_texts() == ["Pair 1 of 12", "Pair 2 of 12"]


@pytest.mark.browser
def test_without_scripts_the_first_pair_and_empty_bars_stand_there(browser):
    widget = prefer(title="Better <b>?", ridge=4)
    first = widget.data["pairs"][0]
    page = page_of(browser, widget._repr_html_(), scripts=False)
    shown = page.locator("[data-ck]").inner_text()
    a, b = first["answers"]
    assert shown.startswith(f"Better <b>?\n\n{first['request']}\n\nA: {a}\n\nB: {b}\n\nThe first of 12 pairs.")
    rows = [(name, "0.00\u00a0±\u00a00.50", f"← {less}", "", f"{more} →") for name, (more, less) in FEATURES.items()]
    assert table_rows(page) == rows
    assert page.locator(".ck").count() == 0


@pytest.mark.browser
def test_text_is_text_and_nothing_is_fetched(browser):
    page = page_of(browser, ROUGH._repr_html_())
    assert page.locator(".ck strong").text_content() == EVIL
    assert page.locator(".request").text_content() == EVIL
    assert sorted(page.locator(".answers span").all_text_contents()) == sorted(["x" * 400, EVIL])
    assert page.locator(".feature .name").all_text_contents() == [EVIL, "x" * 90]
    for _ in range(2):
        page.locator(".answers button").first.click()
    assert page.locator(".belief").inner_text() != ""
    harmless(page, "img, .ck script")


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", WIDGETS)
def test_accessible_in_both_themes(browser, name, scheme):
    page = accessible(browser, WIDGETS[name], scheme)
    page.locator(".answers button").first.focus()
    while page.locator(".answers").is_visible():
        page.keyboard.press("a")
        if page.locator(".marks .now").count() < 3:
            assert violations(page) == []
    assert page.errors == []


@pytest.mark.browser
@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("name", WIDGETS)
def test_a_phone_is_wide_enough(browser, name, scripts):
    fits_a_phone(
        browser,
        WIDGETS[name],
        scripts,
        lambda page: page.locator(".answers button").first.click(),
        lambda page: page.locator(".ck").press("b"),
    )
