import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coursekit.nn.sampling import keep_top_k, keep_top_p, with_temperature
from coursekit.viz.generate import KS, PS, TEMPERATURES, Generate, after_cuts
from coursekit.viz.tokens import visible
from tests.viz.page import (
    EVIL,
    accessible,
    alert,
    asked_of,
    fits_a_phone,
    harmless,
    largest,
    live_page,
    page_of,
    status,
    tell,
    three_digits,
    told,
    violations,
)

VOCAB = ["the", " cat", " sat", "\n", "dog", "é", "mat", " on", "internationalization", ".", "a", "b"]
LARGE = [f"w{i}" for i in range(300)]


def logits(seed: int, size: int = len(VOCAB), std: float = 2.0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=size) * std).astype(np.float32)


def hand(**change) -> Generate:
    """Probabilities 1/2, 1/4, 1/8, 1/16, 1/16 at two places, in different orders."""
    values = np.log([8, 4, 2, 1, 1])
    steps = [(0, values), (3, values[::-1].copy())]
    given = {"tokens": ["Once", " upon"], "steps": steps, "vocabulary": ["a", " b", "c", "\n", "e"], "k": 3}
    return Generate(**given | change)


def reference(values: np.ndarray, temperature: float, k: int | None, p: float | None) -> np.ndarray:
    """What ``coursekit.decode`` draws from, in float64."""
    x = torch.tensor(values, dtype=torch.float64)
    if temperature == 0:
        return torch.nn.functional.one_hot(x.argmax(), len(x)).double().numpy()
    x = with_temperature(x, temperature)
    if k is not None:
        x = keep_top_k(x, k)
    if p is not None:
        x = keep_top_p(x, p)
    return x.softmax(dim=-1).numpy()


def in_nats(share: np.ndarray) -> float:
    share = share[share > 0]
    return float(-(share * np.log(share)).sum()) + 0.0


CHOICES = {
    "temperature": st.sampled_from(TEMPERATURES),
    "k": st.sampled_from([None, *KS]),
    "p": st.sampled_from([None, *PS[:-1]]),
}


@given(seed=st.integers(0, 10**6), size=st.integers(2, 80), ties=st.booleans(), **CHOICES)
def test_the_static_table_follows_the_rules_of_decode(seed, size, ties, temperature, k, p):
    values = logits(seed, size)
    if ties:
        values = values.round()
    share, expected = after_cuts(values, temperature, k, p), reference(values, temperature, k, p)
    if ties:  # which of the equal ones the nucleus takes is left to chance
        share, expected = np.sort(share), np.sort(expected)
    np.testing.assert_allclose(share, expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tokens": "Once upon"}, "tokens is one str, 'Once upon': give a list of tokens"),
        ({"tokens": ["Once", 3]}, "tokens has the token 3: each must be str and not empty"),
        ({"vocabulary": ["a"]}, "vocabulary has 1 tokens: give at least two to choose from"),
        ({"vocabulary": ["a", "", "c", "d", "e"]}, "vocabulary has the token '': each must be str"),
        ({"vocabulary": list("abcd")}, r"step 0: logits have shape \(5,\), but 4 tokens need \(4,\)"),
        ({"steps": []}, r"steps is empty: give \(id, logits\) of at least one written token"),
        ({"steps": [np.zeros(5)]}, r"step 0: must be \(id, logits\), a whole number and an array of numbers"),
        ({"steps": [("a", np.zeros(5))]}, r"step 0: must be \(id, logits\)"),
        ({"steps": [(0.5, np.zeros(5))]}, r"step 0: must be \(id, logits\)"),
        ({"steps": [(0, ["x"] * 5)]}, r"step 0: must be \(id, logits\)"),
        ({"steps": [(0, np.zeros(5)), (5, np.zeros(5))]}, r"step 1 has the id 5: must lie in 0\.\.4, the vocabulary's"),
        ({"steps": [(-1, np.zeros(5))]}, "step 0 has the id -1"),
        ({"steps": [(0, np.zeros((1, 5)))]}, r"step 0: logits have shape \(1, 5\)"),
        ({"steps": [(0, [0, 0, np.nan, 0, 0])]}, "step 0: the logit of 'c' is nan, but must be finite"),
        ({"steps": [(0, [0, 0, 0, -np.inf, 0])]}, r"step 0: the logit of '\\n' is -inf, but must be finite"),
        ({"k": 0}, "k=0: between 1 and 50 bars"),
        ({"keep": 2}, "keep=2: must be a whole number, from k=3 to 500"),
        ({"keep": 501}, "keep=501: must be a whole number, from k=3 to 500"),
        ({"keep": 4.0}, r"keep=4\.0: must be a whole number"),
        ({"tokens": ["x" * 950_000]}, "the places take 1,.* bytes, more than 900,000: give fewer steps or a smaller"),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says) as refused:
        hand(**change)
    assert "\n" not in str(refused.value)


def test_tensors_and_iterators_are_taken():
    steps = ((torch.tensor(i), torch.tensor(logits(i)).requires_grad_()) for i in range(3))
    widget = Generate(iter(["x"]), steps, iter(VOCAB))
    text = widget.data["text"]
    assert [text["words"][place["token"]] for place in text["places"]] == [visible(t) for t in VOCAB[:3]]


def test_equal_logits_are_not_parted():
    """Of a tie at the end of what is kept all are kept: top-k keeps all of them, too."""
    values = np.zeros(300, dtype=np.float32)
    values[:5] = 1
    widget = Generate([], [(0, values)], LARGE, keep=12)
    assert len(widget.data["text"]["places"][0]["ids"]) == 300
    assert widget.data["text"]["places"][0]["others"] is None
    values[5:50] = 0.5
    widget = Generate([], [(0, values)], LARGE, keep=12)
    assert len(widget.data["text"]["places"][0]["ids"]) == 50


def test_the_largest_page_stays_below_the_limit():
    def widget(n: int) -> Generate:
        steps = [(i, logits(i, 600, 3)) for i in range(n)]
        return Generate(["&" * 10] * 10, steps, ["<" + "&" * (i % 7) for i in range(600)], keep=500)

    n = largest(widget, 200, "give fewer steps or a smaller keep")
    assert 850_000 < len(widget(n)._repr_html_().encode()) < 1_000_000
    assert n > 40


# --- the kernel's side of a live view -----------------------------------------------------------------------


START = {"source": "Once upon", "temperature": 0.7, "k": 5, "p": None, "turn": 1}


def written(data) -> list[str]:
    return [data["text"]["words"][place["token"]] for place in data["text"]["places"]]


def test_a_kernel_writes_on_until_the_text_ends(monkeypatch):
    monkeypatch.setattr("coursekit.viz.generate.SECONDS", 0)  # one token for each question
    asked, made = [], []

    def fn(*settings):
        asked.append(settings)
        for i in range(3):
            made.append(i)
            yield i, logits(i, 5)

    start = hand()
    view = start.live(fn)
    assert view.data == start.data
    data = asked_of(view, START)
    assert asked == [("Once upon", 0.7, 5, None)]
    assert (data["turn"], data["done"], data["written"], data["error"]) == (1, False, 1, "")
    assert made == [0], "no more than was asked for"
    assert data["text"]["prompt"] == ["Once", "·upon"]
    assert written(data) == ["a"]
    assert written(asked_of(view, {"turn": 2})) == ["a", "·b"]
    data = asked_of(view, {"turn": 3})
    assert (written(data), data["done"]) == (["a", "·b", "c"], False)
    data = asked_of(view, {"turn": 4})
    assert (written(data), data["done"], data["turn"]) == (["a", "·b", "c"], True, 4)
    expected = Generate(["Once", " upon"], [(i, logits(i, 5)) for i in range(3)], ["a", " b", "c", "\n", "e"], k=3)
    assert data["text"] == expected.data["text"]
    assert start.data["text"]["prompt"] == ["Once", "·upon"]
    assert written(start.data) == ["a", "⏎"], "the widget itself is as it was"


def test_a_kernel_writes_several_tokens_at_once_where_it_is_fast():
    view = hand().live(lambda *_: [(i, logits(i, 5)) for i in range(4)])
    data = asked_of(view, START)
    assert (written(data), data["done"]) == (["a", "·b", "c", "⏎"], True)


def test_a_kernel_stops_and_starts_anew(monkeypatch):
    monkeypatch.setattr("coursekit.viz.generate.SECONDS", 0)
    ended = []

    def fn(text, *_):
        try:
            while True:
                yield 1, logits(len(text), 5)
        finally:
            ended.append(text)

    view = hand().live(fn)
    asked_of(view, START)
    asked_of(view, {"turn": 2})
    data = asked_of(view, {"stop": True, "turn": 3})
    assert (len(written(data)), data["done"], data["error"]) == (2, True, "")
    assert ended == ["Once upon"]
    data = asked_of(view, START | {"source": "other", "turn": 4})
    assert (data["text"]["prompt"], len(written(data)), data["done"]) == (["other"], 1, False)
    asked_of(view, START | {"source": "third", "turn": 5})
    assert ended == ["Once upon", "other"], "what is not wanted any more ends"


def test_a_kernel_refuses():
    def fn(text, *_):
        if text == "bad":
            raise ValueError("no such text")
        if text == "none":
            return
        yield 0, logits(0, 5)
        if text == "half":
            raise ValueError("no more room")
        if text == "wrong":
            yield 7, logits(0, 5)

    start = hand()
    view = start.live(fn)
    for source, n, error in [
        ("bad", 0, "no such text"),
        ("none", 0, "nothing was written: give a text that can be gone on with"),
        ("half", 1, "no more room"),
        ("wrong", 1, "step 1 has the id 7: must lie in 0..4, the vocabulary's"),
        ("\ud800", 0, "the text has a lone surrogate, U+D800, half of a character: leave it out"),
    ]:
        data = asked_of(view, START | {"source": source})
        assert (data["written"], data["done"], data["error"]) == (n, True, error)
    assert data["text"]["prompt"] == ["wrong"], "what was shown stays"
    asked_of(view, START | {"source": "fine"})
    assert view.data["error"] == ""
    view = start.live(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        asked_of(view, START)


def test_a_kernel_does_not_write_more_than_a_page_holds():
    def fn(*_):
        while True:
            yield 0, logits(0, 300)

    view = Generate([], [(0, logits(0, 300))], LARGE, keep=200).live(fn)
    data, turn = asked_of(view, START), 1
    while not data["done"]:
        turn += 1
        data = asked_of(view, {"turn": turn})
    assert data["error"] == "stopped: the places take more than 900,000 bytes, so write a shorter text"
    assert len(written(data)) > 30


# --- in the browser ------------------------------------------------------------------------------------------

SEVERAL = Generate(["Once", " upon"], [(i, logits(i)) for i in (1, 3, 0, 2)], VOCAB, "Several <b>", k=12)
MANY = Generate(["Once"], [(i, logits(i, 300, 3)) for i in range(3)], LARGE, k=10, keep=40)
HEBREW = Generate(["שלום"], [(0, [2.0, 1, 0]), (1, [0, 2.0, 1])], [" טוב", "مرحبا", "x"], k=2)
ROUGH = Generate([EVIL, "\u202e"], [(0, [2.0, 1, 0]), (2, [1, 0, 2.0])], [EVIL, "x" * 300, "\ue000"], EVIL)
LONG = Generate(["word"] * 200, [(i % 12, logits(i)) for i in range(40)], VOCAB)
WIDGETS = {"several": SEVERAL, "many": MANY, "hebrew": HEBREW, "rough": ROUGH, "long": LONG, "hand": hand()}


def put(page, temperature: float | None = None, k: int | None = None, p: float | None = None) -> None:
    """Move the sliders; k and p stay off where they are None."""
    data = page.evaluate("() => [...document.querySelectorAll('input[type=range]')].map(x => Number(x.max))")
    ks = [*KS][: data[1]]
    stops = [
        TEMPERATURES.index(1.0 if temperature is None else temperature),
        data[1] if k is None else ks.index(k),
        data[2] if p is None else PS.index(p),
    ]
    for name, stop in zip(("Temperature", "Top-k", "Top-p"), stops):
        page.get_by_role("slider", name=name).fill(str(stop))


def rows(page) -> list[dict]:
    """The rows of the table: token, exact probabilities, what is written there, widths of the bars."""
    return page.locator("tbody tr").evaluate_all(
        """all => all.map(row => ({token: row.querySelector('th').textContent, before: Number(row.dataset.before),
          after: Number(row.dataset.after), cut: row.classList.contains('cut'),
          cells: [...row.querySelectorAll('.number')].map(cell => cell.textContent),
          bars: [...row.querySelectorAll('.bar')].map((bar) => {
            const [frame, filled] = [bar, bar.firstChild].map((el) => el.getBoundingClientRect().width);
            return filled / (frame - 2);
          })}))"""
    )


def figures(page) -> str:
    return page.get_by_role("status").inner_text()


def said(values: np.ndarray, temperature: float, k: int | None, p: float | None) -> str:
    """What stands above the table."""
    share, tempered = reference(values, temperature, k, p), reference(values, temperature, None, None)
    plain = reference(values, 1, None, None)
    return (
        f"Left: {np.count_nonzero(share):,} of {len(values):,} tokens with {tempered[share > 0].sum():.3f} of the "
        f"probability; entropy {in_nats(share):.3f} nats, before {in_nats(plain):.3f}."
    )


SETTINGS = [
    (1.0, None, None), (0.0, None, None), (0.0, 3, 0.5), (0.5, None, None), (2.0, None, None), (1.0, 1, None),
    (1.0, 5, None), (1.3, 12, None), (1.0, None, 0.05), (1.0, None, 0.5), (1.0, None, 0.9), (1.0, None, 0.99),
    (0.7, 8, 0.9), (2.0, 6, 0.95), (0.1, None, 0.99), (1.7, 40, 0.35), (2.0, 30, 0.8), (2.0, None, 0.95),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("name", ["random", "others", "ties"])
def test_the_page_follows_the_rules_of_decode(browser, name):
    """Random logits, all held and not; the sums behind what is held; ties where top-k and the nucleus end."""
    size = 300 if name == "others" else 50
    keep = 40 if name == "others" else 50
    steps = [(7, logits(seed, size, 1.5)) for seed in (11, 12)]
    if name == "ties":
        steps = [(7, (values / 2).round() * 2) for _, values in steps]
    page = page_of(browser, Generate(["x"], steps, LARGE[:size], k=keep, keep=keep)._repr_html_())
    behind = 0
    for number, (_, values) in enumerate(steps):
        if number:
            page.get_by_role("button", name="Next").click()
        order = np.argsort(values, kind="stable")[::-1]
        for temperature, k, p in SETTINGS:
            put(page, temperature, k, p)
            expected, plain = reference(values, temperature, k, p), reference(values, 1, None, None)
            shown = rows(page)
            bars = shown[:keep]
            if name == "ties" and temperature:  # which of the equal ones the nucleus takes is left to chance
                expected = np.sort(expected)[np.argsort(np.argsort(values, kind="stable"))]
            where = f"{name} {number}: temperature {temperature}, k {k}, p {p}"
            assert [row["token"] for row in bars] == [LARGE[i] for i in order[:keep]]
            np.testing.assert_allclose([row["before"] for row in bars], plain[order[:keep]], rtol=1e-5, err_msg=where)
            np.testing.assert_allclose(
                [row["after"] for row in bars], expected[order[:keep]], rtol=1e-5, atol=1e-30, err_msg=where
            )
            assert figures(page) == said(values, temperature, k, p), where
            assert [row["cut"] for row in bars] == list((expected[order[:keep]] == 0) & (temperature > 0)), where
            if name == "others":
                left, before = (each[order[keep:]].sum() for each in (expected, plain))
                np.testing.assert_allclose([shown[-1]["after"], shown[-1]["before"]], [left, before], rtol=1e-5)
                behind += 0 < np.count_nonzero(expected[order[keep:]]) < size - keep
            else:
                assert len(shown) == size
    assert behind >= 2 or name != "others", "the nucleus ends among what is not held one by one"
    assert page.requests == ["http://ck.test/"]
    assert page.errors == []


@pytest.mark.browser
def test_numbers_bars_and_words_by_hand(browser):
    page = page_of(browser, hand()._repr_html_())
    assert status(page) == "Place 1 of 2, after “·upon”: “a” was written here, rank 1, 0.500 before, 0.500 after."
    assert [row["cells"] for row in rows(page)] == [[x, x, "–"] for x in ("0.500", "0.250", "0.125", "0.125")]
    assert page.locator("thead th").all_inner_texts() == ["next token", "bars: 0 to 0.5", "before", "after", "drawn"]
    put(page, p=0.75)
    shown = rows(page)
    assert [row["token"] for row in shown] == ["a", "·b", "c", "all others"]
    assert [row["cells"][1] for row in shown] == ["0.667", "0.333", "cut", "cut"]
    assert page.locator("thead th").nth(1).inner_text() == "bars: 0 to 1"
    np.testing.assert_allclose([row["bars"][0] for row in shown], [0.5, 0.25, 0.125, 0.125], atol=0.01)
    np.testing.assert_allclose([row["bars"][1] for row in shown], [2 / 3, 1 / 3, 0, 0], atol=0.01)
    entropy = -sum(p * np.log(p) for p in (2 / 3, 1 / 3))
    assert figures(page) == (
        f"Left: 2 of 5 tokens with 0.750 of the probability; entropy {entropy:.3f} nats, before 1.300."
    )
    assert status(page).endswith("rank 1, 0.500 before, 0.667 after.")
    page.get_by_role("button", name="Next").click()
    assert status(page) == "Place 2 of 2, after “a”: “⏎” was written here, rank 2, 0.250 before, 0.333 after."
    put(page, k=1)
    assert status(page).endswith("rank 2, 0.250 before, cut after.")
    put(page, temperature=0.5)
    np.testing.assert_allclose(rows(page)[0]["after"], 64 / 86, rtol=1e-6)
    put(page, temperature=0.0)
    assert [row["cells"][1] for row in rows(page)] == ["1.000", "0.000", "0.000", "0.000"]
    assert page.get_by_role("slider", name="Temperature").get_attribute("aria-valuetext") == "0, the likeliest"
    assert page.get_by_role("slider", name="Top-k").get_attribute("aria-valuetext") == "off"
    put(page, k=2, p=0.99)
    assert page.get_by_role("slider", name="Top-k").get_attribute("aria-valuetext") == "2"
    assert page.get_by_role("slider", name="Top-p").get_attribute("aria-valuetext") == "0.99"
    assert page.errors == []


def numbers_of(seed: int):
    """The generator of the page, on its own: 48271 x mod 2^31 - 1, ten numbers passed over."""
    x = seed
    for i in range(10**6):
        x = x * 48271 % (2**31 - 1)
        if i >= 10:
            yield x / (2**31 - 1)


@pytest.mark.browser
@pytest.mark.parametrize(("typed", "used"), [("-5", 1), ("1.5", 1), ("", 1), ("9" * 20, 2**31 - 2), ("77", 77)])
def test_the_seed_that_is_shown_is_the_one_that_is_used(browser, typed, used):
    page = page_of(browser, MANY._repr_html_())
    field = page.get_by_role("spinbutton", name="Seed")
    drawn = []
    for text in (typed, str(used)):
        field.fill(text)
        page.get_by_role("button", name="Draw 1,000").click()
        assert field.input_value() == str(used)
        drawn.append([row["cells"][2] for row in rows(page)])
    assert drawn[0] == drawn[1]


@pytest.mark.browser
def test_what_is_drawn_can_be_drawn_again(browser):
    page = page_of(browser, MANY._repr_html_())
    values = logits(0, 300, 3)
    put(page, 1.4, None, 0.9)
    expected = reference(values, 1.4, None, 0.9)
    order = np.argsort(values, kind="stable")[::-1]
    held = np.cumsum(expected[order[:40]])
    for seed in (1, 77):
        page.get_by_role("spinbutton", name="Seed").fill(str(seed))
        assert [row["cells"][2] for row in rows(page)] == ["–"] * 11
        page.get_by_role("button", name="Draw one").click()
        u = numbers_of(seed)
        drawn = [int(np.searchsorted(held, next(u), side="right"))]
        name = f"“{LARGE[order[drawn[0]]]}”" if drawn[0] < 40 else "one of all others"
        assert status(page) == f"Drawn: 1 token: {name}."
        page.get_by_role("button", name="Draw 1,000").click()
        page.get_by_role("button", name="Draw 1,000").click()
        drawn += [int(np.searchsorted(held, next(u), side="right")) for _ in range(2000)]
        counts = np.bincount(np.minimum(drawn, 10), minlength=11)
        assert [int(row["cells"][2].replace(",", "")) for row in rows(page)] == list(counts)
        assert page.locator("thead th").last.inner_text() == "of 2,001"
        top = expected[order[0]]
        assert abs(counts[0] / 2001 - top) < 4 * np.sqrt(top * (1 - top) / 2001)
    for other in ("3", "77"):
        page.get_by_role("spinbutton", name="Seed").fill(other)
        assert status(page).startswith("Place 1 of"), "what was drawn is no longer said"
    page.get_by_role("button", name="Draw one").click()
    page.get_by_role("button", name="Clear").click()
    assert status(page).startswith("Place 1 of")
    assert [row["cells"][2] for row in rows(page)] == ["–"] * 11
    page.get_by_role("button", name="Draw 1,000").click()
    again = [row["cells"][2] for row in rows(page)]
    put(page, 1.4, None, 0.85)
    assert [row["cells"][2] for row in rows(page)] == ["–"] * 11, "other probabilities, other draws"
    put(page, 1.4, None, 0.9)
    page.get_by_role("button", name="Draw 1,000").click()
    assert [row["cells"][2] for row in rows(page)] == again
    page.get_by_role("button", name="Next").click()
    assert [row["cells"][2] for row in rows(page)] == ["–"] * 11
    assert page.errors == []


@pytest.mark.browser
def test_what_is_cut_is_never_drawn(browser):
    page = page_of(browser, SEVERAL._repr_html_())
    put(page, 2.0, 4, None)
    for _ in range(3):
        page.get_by_role("button", name="Draw 1,000").click()
    counts = [int(row["cells"][2].replace(",", "")) for row in rows(page)]
    assert sum(counts[:4]) == 3000
    assert min(counts[:4]) > 0
    put(page, 0.0)
    page.get_by_role("button", name="Draw 1,000").click()
    assert [row["cells"][2] for row in rows(page)] == ["1,000"] + ["0"] * 11


def here(page) -> list[str]:
    return page.locator(".text [aria-pressed=true]").all_inner_texts()


@pytest.mark.browser
def test_the_places_with_keys_and_buttons(browser):
    page = page_of(browser, SEVERAL._repr_html_())
    tokens = [visible(VOCAB[i]) for i in (1, 3, 0, 2)]
    assert here(page) == [tokens[0]]
    back, on = (page.get_by_role("button", name=name) for name in ("Back", "Next"))
    assert back.is_disabled()
    page.locator(".text button").first.focus()
    moves = [("Right", 1), ("Down", 2), ("Left", 1), ("End", 3), ("Right", 3), ("Home", 0), ("Up", 0)]
    for key, i in moves:
        key = key if key in ("End", "Home") else f"Arrow{key}"
        page.keyboard.press(key)
        assert [token.strip() for token in here(page)] == [tokens[i]], key
        assert page.evaluate("document.activeElement.textContent.trim()") == tokens[i], "the focus goes with it"
        assert status(page).startswith(f"Place {i + 1} of 4, after “{(['·upon', *tokens])[i]}”: “{tokens[i]}” was")
        values = logits((1, 3, 0, 2)[i])
        assert rows(page)[0]["token"] == visible(VOCAB[values.argmax()])
    page.keyboard.press("Control+ArrowRight")
    assert here(page) == [tokens[0]], "the browser's own keys stay its own"
    page.get_by_role("slider", name="Temperature").press("ArrowLeft")
    assert here(page) == [tokens[0]], "a slider keeps its keys"
    assert page.get_by_role("slider", name="Temperature").get_attribute("aria-valuetext") == "0.9"
    on.focus()
    for _ in range(3):
        page.keyboard.press("Enter")
    assert on.is_disabled()
    assert page.evaluate("document.activeElement.textContent") == "◀ Back"
    page.locator(".text button").nth(2).click()
    assert here(page) == [tokens[2]]
    assert figures(page) == said(logits(0), 0.9, None, None), "the sliders stay where they are"
    assert page.errors == []


@pytest.mark.browser
def test_without_scripts_the_settings_stand_there(browser):
    page = page_of(browser, SEVERAL._repr_html_(), scripts=False)
    assert page.locator(".ck").count() == 0
    words = " ".join(visible(VOCAB[i]) for i in (1, 3, 0, 2))
    assert page.locator("main p").inner_text() == f"Several <b>: Once ·upon {words}"
    values = logits(1)
    settings = [(1, None, None), (0.5, None, None), (2, None, None), (1, 5, None), (1, None, 0.9)]
    order = np.argsort(values)[::-1]
    for i, row in zip(order, page.locator("tbody tr").all()[:12]):
        assert row.locator("th").inner_text() == visible(VOCAB[i])
        expected = [reference(values, *setting)[i] for setting in settings]
        written = ["–" if p == 0 else three_digits(p) for p in expected]
        assert row.locator("td").all_inner_texts() == written
    left, nats = page.locator("tbody tr").all()[12:]
    shares = [reference(values, *setting) for setting in settings]
    assert left.locator("td").all_inner_texts() == [str(np.count_nonzero(share)) for share in shares]
    assert nats.locator("td").all_inner_texts() == [f"{in_nats(share):.3f}" for share in shares]
    page = page_of(browser, MANY._repr_html_(), scripts=False)
    others = page.locator("tbody tr", has_text="all others").locator("td").all_inner_texts()
    values = logits(0, 300, 3)
    rest = [reference(values, *setting)[np.argsort(values)[:-10]].sum() for setting in settings]
    assert others == ["–" if p == 0 else three_digits(p) for p in rest]


@pytest.mark.browser
def test_text_is_text_and_nothing_is_fetched(browser):
    page = page_of(browser, ROUGH._repr_html_())
    assert page.locator(".ck strong").inner_text() == EVIL
    assert rows(page)[0]["token"] == visible(EVIL)
    assert here(page) == [visible(EVIL)]
    page.get_by_role("button", name="Next").click()
    assert status(page).startswith(f"Place 2 of 2, after “{visible(EVIL)}”: “U+E000” was written")
    harmless(page, "img, .ck strong b")


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["many", "rough", "hebrew"])
def test_accessible_in_both_themes(browser, name, scheme):
    page = accessible(browser, WIDGETS[name], scheme)
    put(page, 0.7, 2, 0.9)
    page.get_by_role("button", name="Next").click()
    page.get_by_role("button", name="Draw 1,000").click()
    assert violations(page) == []
    assert page.errors == []


@pytest.mark.browser
@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("name", WIDGETS)
def test_a_phone_is_wide_enough(browser, name, scripts):
    def draw_many(page):
        for _ in range(11):
            page.get_by_role("button", name="Draw 1,000").click()

    fits_a_phone(browser, WIDGETS[name], scripts, draw_many)


def slow(text, *_):
    for i in range(3):
        yield i, logits(i, 5)
    if text == "half":
        raise ValueError("no <more> room")


@pytest.mark.browser
def test_live_a_text_is_written_token_by_token(browser, monkeypatch):
    monkeypatch.setattr("coursekit.viz.generate.SECONDS", 0)
    view = hand().live(slow)
    page = live_page(browser, "generate", view.data)
    field, stop = page.get_by_role("textbox", name="Text"), page.get_by_role("button", name="Stop")
    assert stop.is_disabled()
    put(page, 0.7, 3, None)
    field.fill("The dog")
    field.press("Enter")
    assert page.evaluate("window.sent") == [{"source": "The dog", "temperature": 0.7, "k": 3, "p": None, "turn": 1}]
    assert status(page) == "Writing …"
    assert stop.is_enabled()
    told(page, view)
    assert page.locator(".text").inner_text().split() == ["The", "·dog", "a"]
    assert page.evaluate("window.sent.at(-1)") == {"turn": 2}
    told(page, view)
    assert here(page) == ["·b"], "the newest token is shown"
    assert figures(page) == said(logits(1, 5), 0.7, 3, None)
    page.locator(".text button").first.click()
    told(page, view)
    assert here(page) == ["a"], "where one looks the view stays"
    told(page, view)
    assert page.evaluate("window.sent.length") == 4
    assert stop.is_disabled()
    assert page.locator(".text").inner_text().split() == ["The", "·dog", "a", "·b", "c"]
    assert page.errors == []


@pytest.mark.browser
def test_live_stop_refusals_and_late_answers(browser, monkeypatch):
    monkeypatch.setattr("coursekit.viz.generate.SECONDS", 0)
    view = hand().live(slow)
    page = live_page(browser, "generate", view.data)
    field = page.get_by_role("textbox", name="Text")
    field.fill("one")
    page.get_by_role("button", name="Write").click()
    put(page, 1.4, None, None)
    assert status(page) == "Writing …", "nothing has come yet"
    told(page, view)
    assert status(page).startswith("Place 1 of 1")
    late = asked_of(view, page.evaluate("window.sent.at(-1)"))
    page.get_by_role("button", name="Stop").click()
    assert page.evaluate("window.sent.at(-1)") == {"stop": True, "turn": 3}
    tell(page, late)
    assert page.evaluate("window.sent.length") == 3, "nothing more is asked for"
    told(page, view)
    assert page.evaluate("window.sent.length") == 3
    assert page.locator(".text").inner_text().split() == ["one", "a", "·b"]
    field.fill("half")
    field.press("Enter")
    for _ in range(4):
        told(page, view)
    assert alert(page) == "no <more> room"
    assert page.locator(".text").inner_text().split() == ["half", "a", "·b", "c"]
    assert violations(page, "#there") == []
    again = live_page(browser, "generate", view.data)
    assert again.locator(".text").inner_text().split() == ["half", "a", "·b", "c"], "shown anew it is where it was"
    again.get_by_role("textbox", name="Text").press("Enter")
    assert again.evaluate("window.sent[0].turn") == view.data["turn"] + 1
    assert page.errors == []


@pytest.mark.browser
def test_two_on_one_page_keep_to_themselves(browser):
    page = page_of(browser, SEVERAL._repr_html_() * 2)
    page.locator(".ck").nth(1).get_by_role("slider", name="Temperature").fill("3")
    page.locator(".ck").nth(1).get_by_role("button", name="Next").click()
    assert page.locator("[aria-live]").nth(0).inner_text().startswith("Place 1 of 4")
    assert page.locator("[aria-live]").nth(1).inner_text().startswith("Place 2 of 4")
    assert page.locator("output").all_inner_texts() == ["1.0", "off", "off", "0.3", "off", "off"]
