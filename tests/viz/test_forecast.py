import re
from itertools import chain

import numpy as np
import pytest

from coursekit.viz import Forecast, forecast
from tests.viz.page import (
    EVIL,
    accessible,
    fits,
    fits_a_phone,
    harmless,
    keeps_its_keys,
    live_page,
    numbers,
    page_of,
    status,
    table_rows,
    tell,
    violations,
)

T, H = 90, 6
RNG = np.random.default_rng(0)
CUTS = np.array([30, 34, 41, 44, 60, 61, 80])
K = len(CUTS)


def series() -> np.ndarray:
    values = 20 * np.sin(np.arange(T) / 5) + RNG.normal(size=T)
    values[[26, 27, 29, 45, 46, 48]] = (
        np.nan
    )  # 28 and 47 stand alone; some of the forecasts from 41 and 44 have no target
    values[61:67] = np.nan  # of that from 61 none has
    return values


VALUES = series()
AHEAD = CUTS[:, None] + np.arange(H)
MODELS = {
    name: 20 * np.sin(AHEAD / 5) + RNG.normal(size=(K, H)) * spread for name, spread in (("a", 3), ("b", 2), ("c", 4))
}
BAND = MODELS["b"][..., None] + np.array([-1.5, 1.0]) * RNG.random((K, H, 1)) * 4
LABELS = [f"day {t // 24} {t % 24:02d}:00" for t in range(T)]
GIVEN = {"values": VALUES, "forecasts": MODELS, "cuts": CUTS, "bands": {"b": BAND}, "unit": "°C", "history": 20}


def by_hand(widget: dict) -> dict[str, list[float]]:
    """Of each model the mean absolute error at each cut and, last, over all of them; of its band the share inside."""
    found = {}
    for name, rows in widget["forecasts"].items():
        errors = [
            [abs(y - x) for y, x in zip(widget["values"][cut:], row) if y == y]
            for cut, row in zip(widget["cuts"], rows)
        ]
        found[name] = [np.mean(row) if row else np.nan for row in [*errors, list(chain(*errors))]]
    for name, rows in widget["bands"].items():
        inside = [
            [low <= y <= high for y, (low, high) in zip(widget["values"][cut:], row) if y == y]
            for cut, row in zip(widget["cuts"], rows)
        ]
        found[f"{name} inside"] = [100 * np.mean(row) if row else np.nan for row in [*inside, list(chain(*inside))]]
    return found


TRUE = by_hand(GIVEN)


def is_shown(rows: list[tuple[str, ...]], k: int, digits: int) -> None:
    """The table has the numbers of cut k and of all cuts."""
    assert [row[0] for row in rows] == list(MODELS)
    for name, here, everywhere, *inside in rows:
        for text, true in ((here, TRUE[name][k]), (everywhere, TRUE[name][-1])):
            close(text, true, digits)
        if name == "b":
            for text, true in zip(inside, (TRUE["b inside"][k], TRUE["b inside"][-1]), strict=True):
                close(text.removesuffix("%").strip(), true, 1)
        else:
            assert inside == ["", ""]


def close(text: str, true: float, digits: int) -> None:
    assert (text == "–") == np.isnan(true), (text, true)
    assert text == "–" or abs(float(text) - true) <= 0.501 * 10**-digits, (text, true)


def changed(name: str, at, to: float) -> np.ndarray:
    array = {"values": VALUES, "a": MODELS["a"], "band": BAND}[name].copy()
    array[at] = to
    return array


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"values": np.zeros((2, 9))}, r"values have shape \(2, 9\): must be \(T,\)"),
        ({"values": []}, r"values have shape \(0,\): .* not empty"),
        ({"values": changed("values", 3, -np.inf)}, "values must be finite, or NaN"),
        ({"forecasts": {}}, "names of 1 to 6 models"),
        ({"forecasts": MODELS["a"]}, "names of 1 to 6 models"),
        ({"forecasts": {str(i): MODELS["a"] for i in range(7)}}, "names of 1 to 6 models"),
        ({"forecasts": {"a": MODELS["a"][0]}}, r"forecasts\['a'\] has shape \(6,\): must be \(K, horizon\)"),
        ({"forecasts": {"a": np.zeros((0, 6))}}, r"forecasts\['a'\] has shape \(0, 6\): .* not empty"),
        ({"forecasts": {**MODELS, "c": MODELS["c"][:, :5]}}, r"forecasts\['c'\] has shape \(7, 5\): must be \(7, 6\)"),
        ({"forecasts": {**MODELS, "a": changed("a", (2, 1), np.nan)}}, r"forecasts\['a'\] must be finite"),
        ({"cuts": CUTS[:-1]}, r"cuts have shape \(6,\): must be \(7,\), one for each of the 7 forecasts"),
        ({"cuts": CUTS + 0.5}, "cuts must be whole numbers"),
        ({"cuts": CUTS[::-1]}, "cuts must be increasing"),
        ({"cuts": [30, 34, 34, 44, 60, 61, 80]}, "cuts must be increasing"),
        ({"cuts": CUTS + 5}, r"cuts lie in 35\.\.85: .* must lie in 1\.\.84 .* let values end in NaN"),
        ({"cuts": CUTS - 30}, r"cuts lie in 0\.\.50"),
        ({"bands": {"z": BAND}}, r"bands\['z'\]: no such model among 'a', 'b', 'c'"),
        ({"bands": {"b": BAND[..., 0]}}, r"bands\['b'\] has shape \(7, 6\): must be \(7, 6, 2\)"),
        ({"bands": {"b": BAND[..., ::-1]}}, r"bands\['b'\]: a lower edge lies above the upper one"),
        ({"bands": {"b": changed("band", (0, 0, 0), np.nan)}}, r"bands\['b'\] must be finite"),
        ({"labels": LABELS[1:]}, "89 labels for 90 values"),
        ({"history": 0}, "history=0: must be a whole number, 1 or more"),
        ({"history": 1.5}, "history=1.5"),
        ({"best": MODELS["a"][:3]}, r"best has shape \(3, 6\): must be \(7, 6\)"),
        ({"forecasts": {"best possible": MODELS["a"]}, "bands": {}, "best": MODELS["a"]}, "give it another name"),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says):
        Forecast(**GIVEN | change)


def test_cuts_may_be_the_first_and_the_last_that_there_can_be():
    widget = Forecast(VALUES.tolist(), {"a": MODELS["a"][:2].tolist()}, [1, T - H])
    assert widget.data["values"]["shape"] == [T]


def test_what_does_not_fit_is_refused_with_what_would_do(monkeypatch):
    size = Forecast(**GIVEN).size()
    monkeypatch.setattr(forecast, "ROOM", size)
    Forecast(**GIVEN)
    monkeypatch.setattr(forecast, "ROOM", size - 1)
    with pytest.raises(ValueError, match=r"7 forecasts of 6 values by 3 models take .*every second cut, or cuts\[:3\]"):
        Forecast(**GIVEN)


def test_of_a_long_series_the_page_holds_what_can_be_seen():
    T = 10**6
    values, cuts = np.sin(np.arange(T)), np.arange(T - 9_000, T - 100, 24)
    rows = values[cuts[:, None] + np.arange(48)]
    widget = Forecast(values, dict.fromkeys("abcd", rows), cuts, labels=np.arange(T).astype(str))
    assert len(widget._repr_html_()) < 1_000_000


def test_dollars_and_underscores_are_no_formula():
    names = {r"$\frac$": MODELS["a"], "a_b$c": MODELS["b"]}
    html = Forecast(VALUES, names, CUTS, title=r"$\x$", unit="$^$", labels=[r"$\y$"] * T).static_html()
    assert html.startswith("<svg")


@pytest.mark.browser
@pytest.mark.parametrize("labels", [None, LABELS])
def test_static_is_there_without_scripts_with_the_numbers(browser, labels):
    widget = Forecast(**GIVEN, labels=labels)
    still = page_of(browser, widget._repr_html_(), scripts=False, width=390)
    is_shown(table_rows(still.locator("table")), K // 2, widget.digits)
    assert still.get_by_role("img").count() == 1
    assert (LABELS[CUTS[K // 2]] if labels else "time step 44") in still.locator("thead").inner_text()
    fits(still, 390)


# --- in a browser ------------------------------------------------------------------------------------------------


def open_page(browser, widget, **kwargs):
    page = page_of(browser, widget._repr_html_(), **kwargs)
    page.locator(".ck [aria-live]").wait_for()
    return page


def slider(page):
    return page.get_by_role("slider", name="Cut")


def to_cut(page, k: int) -> None:
    slider(page).evaluate("(x, k) => { x.value = k; x.dispatchEvent(new Event('input')); }", k)


def cut_of(page) -> int:
    return int(re.search(r"\(cut (\d+) of", status(page))[1]) - 1


def said(page) -> str:
    return status(page).replace("\xa0", " ")


def drawn(page, css: str) -> list[np.ndarray]:
    """Of each path, its points (n, 2) in pixels of the plot."""
    paths = page.locator(f".plot path.{css}").evaluate_all("all => all.map(path => path.getAttribute('d'))")
    return [np.array(re.findall(r"[ML]([\d.-]+) ([\d.-]+)", d), dtype=float).reshape(-1, 2) for d in paths]


def axes(page) -> tuple[np.ndarray, np.ndarray]:
    """What gives a value of its height in the plot, and a time of its place: slope and offset of each."""
    ticks = page.locator(".plot .tick").evaluate_all(
        """all => all.map(tick => {
          const {left, width} = tick.getBoundingClientRect();
          const plot = tick.closest('.plot').getBoundingClientRect();
          const upright = tick.hasAttribute('text-anchor');
          return [tick.textContent, left + width / 2 - plot.left, tick.getAttribute('y') - 4, upright];
        })"""
    )
    heights, places = ([t for t in ticks if t[3] is upright] for upright in (True, False))
    assert len(heights) >= 3
    # the first and the last place may have been moved off the edge
    places = [(numbers([t[0]])[0], t[1]) for t in places][1:-1]
    return (
        np.polyfit([t[2] for t in heights], numbers([t[0] for t in heights]), 1),
        np.polyfit([at for _, at in places], [t for t, _ in places], 1) if len(places) > 1 else None,
    )


def is_drawn(page, css: str, i: int, times: np.ndarray, values: np.ndarray) -> None:
    """The i-th path of the kind goes through these values at these times, without those that are missing."""
    there = ~np.isnan(values)
    points = drawn(page, css)[i]
    assert len(points) == there.sum(), f"{len(points)} points of {css}"
    height, place = axes(page)
    np.testing.assert_allclose(np.polyval(height, points[:, 1]), values[there], atol=0.06)  # a tenth of a pixel
    np.testing.assert_allclose(np.polyval(place, points[:, 0]), times[there], atol=0.1)


@pytest.mark.browser
def test_numbers_and_lines_are_the_arrays_at_every_cut_on_one_axis(browser):
    widget = Forecast(**GIVEN)
    page = open_page(browser, widget)
    heights = []
    for k in range(K):
        to_cut(page, k)
        is_shown(table_rows(page.locator("table")), k, widget.digits)
        times = AHEAD[k]
        for i, rows in enumerate(MODELS.values()):
            is_drawn(page, "forecast", i, times, rows[k])
        around = np.concatenate([times, times[::-1]])
        is_drawn(page, "band", 0, around, np.concatenate([BAND[k, :, 0], BAND[k, ::-1, 1]]))
        is_drawn(page, "came", 0, times, VALUES[times])
        past = np.arange(CUTS[k] - 20, CUTS[k])
        is_drawn(page, "known", 0, past, VALUES[past])
        heights.append(axes(page)[0])
        line = page.locator(".plot .cut")
        np.testing.assert_allclose(np.polyval(axes(page)[1], float(line.get_attribute("x1"))), CUTS[k] - 0.5, atol=0.1)
    assert all((height == heights[0]).all() for height in heights), "the axis of values stays"
    every = [VALUES[10:86], *MODELS.values(), BAND]
    top, bottom = (
        np.polyval(heights[0], float(page.locator(".plot .cut").get_attribute(name))) for name in ("y1", "y2")
    )
    assert bottom <= min(map(np.nanmin, every)), "nothing falls off the axis"
    assert top >= max(map(np.nanmax, every))
    assert page.errors == []


@pytest.mark.browser
def test_missing_values_are_gaps_not_counted_and_said(browser):
    page = open_page(browser, Forecast(**GIVEN))
    to_cut(page, 3)  # 44: 45, 46 and 48 are missing
    path = page.locator(".plot .came").get_attribute("d")
    assert path.count("M") == 3, "44, 47 and 49 begin a line each"
    assert path.count("h0") == 3, "also 44 and 47, which stand alone, can be seen"
    assert path.count("L") == 0
    assert "3 of the 6 values that came are missing." in said(page)
    past = page.locator(".plot .known").get_attribute("d")
    assert past.count("M") == 3, "from 24, from 28, from 30"
    to_cut(page, 5)
    assert said(page) == "Forecast from time step 61 on (cut 6 of 7). Nothing is known of what came."
    assert page.locator(".plot .came").get_attribute("d") == ""
    is_shown(table_rows(page.locator("table")), 5, 2)
    assert page.locator("td.least").count() == 1, "only over all cuts"


@pytest.mark.browser
def test_the_status_says_who_is_best(browser):
    page = open_page(browser, Forecast(**GIVEN))
    least = min(MODELS, key=lambda name: TRUE[name][-1])
    for k in (0, 1, 2, 3, 4, 6):
        to_cut(page, k)
        best = min(MODELS, key=lambda name: TRUE[name][k])
        shown = re.search(
            r"Lowest mean absolute error: (\w), ([\d.]+) °C; over all cuts (?:(\w), )?([\d.]+) °C\.", said(page)
        )
        assert shown[1] == best
        close(shown[2], TRUE[best][k], 2)
        assert (shown[3] or best) == least
        close(shown[4], TRUE[least][-1], 2)
        inside = re.search(r"Inside the band of b: ([\d.]+) % of the values, over all cuts ([\d.]+) %\.", said(page))
        close(inside[1], TRUE["b inside"][k], 1)
        close(inside[2], TRUE["b inside"][-1], 1)
        bold = page.locator("tbody tr").evaluate_all(
            "all => all.map(r => [...r.cells].map(c => c.className.includes('least')))"
        )
        assert [[name == best, name == least] for name in MODELS] == [row[1:3] for row in bold]


@pytest.mark.browser
@pytest.mark.parametrize("width", [900, 390])
def test_the_cut_is_dragged_to_the_nearest(browser, width):
    page = open_page(browser, Forecast(**GIVEN | {"history": 60}), width=width)
    step = 1 / axes(page)[1][0]
    to_cut(page, 0)
    box = page.locator(".plot").bounding_box()

    def drag(by: float):
        page.mouse.move(box["x"] + box["width"] / 2 + by * step, box["y"] + 90, steps=3)

    drag(0)
    drag(3)
    assert cut_of(page) == 0, "no button is held"
    drag(0)
    page.mouse.down()
    for by, k in ((1.8, 0), (2.3, 1), (7.3, 1), (7.8, 2), (33, 5), (49, 6), (30.7, 5), (30.3, 4), (-20, 0), (14.1, 3)):
        drag(by)
        assert cut_of(page) == k, by
        assert slider(page).input_value() == str(k)
    assert page.locator(".tip").is_hidden()
    page.mouse.up()
    drag(40)
    assert cut_of(page) == 3, "let go"
    page.keyboard.press("ArrowRight")
    assert cut_of(page) == 4, "the arrow keys go on from there"
    assert page.errors == []


@pytest.mark.browser
def test_on_a_long_series_the_axis_moves_along_and_a_drag_goes_as_far_as_on_the_axis(browser):
    n = 2000
    values, cuts = np.arange(n, dtype=float), np.arange(100, 1900, 5)
    page = open_page(browser, Forecast(values, {"a": values[cuts[:, None] + np.arange(24)]}, cuts))
    for k in (0, 200, len(cuts) - 1):
        to_cut(page, k)
        place = axes(page)[1]
        (known,), (ahead,) = drawn(page, "known"), drawn(page, "forecast")
        assert (len(known), len(ahead)) == (72, 24), "all of them on the axis"
        np.testing.assert_allclose(np.polyval(place, known[:, 0]), np.arange(cuts[k] - 72, cuts[k]), atol=0.1)
        left, right = known[0, 0], ahead[-1, 0]
        assert 0 < left < right < page.locator(".plot").bounding_box()["width"]
    to_cut(page, 200)
    box = page.locator(".plot").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 300 + 21 / place[0], box["y"] + 50)
    assert cut_of(page) == 204
    page.mouse.up()


@pytest.mark.browser
def test_keyboard_alone_is_enough(browser):
    page = open_page(browser, Forecast(**GIVEN, labels=LABELS))
    for keys, k in (
        (["ArrowLeft"], 2),
        (["Home"], 0),
        (["ArrowRight", "ArrowRight"], 2),
        (["End"], 6),
        (["ArrowUp"], 6),
    ):
        for key in keys:
            slider(page).press(key)
        assert cut_of(page) == k
        assert slider(page).get_attribute("aria-valuetext") == LABELS[CUTS[k]]
        assert status(page).startswith(f"Forecast from {LABELS[CUTS[k]]} on")
    keeps_its_keys(page, slider(page), ["ArrowDown", "Home"])
    toggle = page.get_by_role("button", name="a", exact=True)
    toggle.focus()
    page.keyboard.press("Space")
    assert toggle.get_attribute("aria-pressed") == "false"
    assert toggle.evaluate("button => button === document.activeElement"), "the keys stay on it"


@pytest.mark.browser
def test_the_legend_switches_models_and_the_axis_leaves_out_what_is_off(browser):
    wild = {**MODELS, "wild": MODELS["a"] * 1e6}
    page = open_page(browser, Forecast(**GIVEN | {"forecasts": wild}))
    buttons = page.locator(".keys button")
    assert [b.get_attribute("aria-pressed") for b in buttons.all()] == ["true"] * 4
    buttons.nth(3).click()
    page.mouse.move(0, 0)
    assert buttons.nth(3).get_attribute("aria-pressed") == "false"
    for i, rows in enumerate(MODELS.values()):
        is_drawn(page, "forecast", i, AHEAD[3], rows[3])
    height = axes(page)[0]
    best, second = sorted(MODELS, key=lambda name: TRUE[name][3])[:2]
    assert f"Lowest mean absolute error: {best}, " in said(page)
    page.get_by_role("button", name=best, exact=True).click()
    page.mouse.move(0, 0)
    assert f"Lowest mean absolute error: {second}, " in said(page)
    assert len(drawn(page, "forecast")) == 2
    assert page.locator("tbody tr").count() == 4, "the table keeps all"
    np.testing.assert_allclose(axes(page)[0], height, rtol=0.5)
    for button in buttons.all():
        if button.get_attribute("aria-pressed") == "true":
            button.click()
    page.mouse.move(0, 0)
    assert drawn(page, "forecast") == drawn(page, "band") == []
    assert said(page) == (
        "Forecast from time step 44 on (cut 4 of 7). No model is shown. 3 of the 6 values that came are missing."
    )
    for i in (1, 0):
        buttons.nth(i).click()
    page.mouse.move(0, 0)
    is_drawn(page, "forecast", 1, AHEAD[3], MODELS["b"][3])
    assert len(drawn(page, "band")) == 1
    assert page.errors == []


@pytest.mark.browser
def test_models_differ_in_colour_and_in_dashes_and_so_in_the_legend(browser):
    six = {str(i): MODELS["a"] + i for i in range(6)}
    for scheme in ("light", "dark"):
        page = open_page(browser, Forecast(VALUES, six, CUTS, best=MODELS["a"] - 1), scheme=scheme)
        script = "all => all.map(x => { const s = getComputedStyle(x); return [s.stroke, s.strokeDasharray]; })"
        *key, _, _ = page.locator(".sample path").evaluate_all(script)  # without known and came
        best, *lines = page.locator(".plot path.forecast").evaluate_all(script)  # the best possible is drawn beneath
        assert key == [*lines, best]
        assert len({stroke for stroke, _ in key}) == len({dashes for _, dashes in key}) == 7


@pytest.mark.browser
def test_pointing_shows_time_and_values(browser):
    page = open_page(browser, Forecast(**GIVEN, labels=LABELS))
    box = page.locator(".plot").bounding_box()
    page.get_by_role("button", name="c", exact=True).click()
    to_cut(page, 3)  # 44
    lines = drawn(page, "forecast")
    step = lines[0][1, 0] - lines[0][0, 0]

    def rows(t: int) -> list[str]:
        page.mouse.move(box["x"] + lines[0][0, 0] + (t - 44) * step + 0.3 * step, box["y"] + 150)
        return page.locator(".tip > *").all_inner_texts()

    for t in (44, 45, 49):
        i = t - 44
        time, *texts = rows(t)
        assert time == LABELS[t]
        assert texts[::2] == ["what came", "a", "b"]
        came, a, b = (text.replace("\xa0", " ").replace("\n", " ") for text in texts[1::2])
        assert came == ("missing" if t == 45 else f"{VALUES[t]:.2f} °C".replace("-", "−"))
        assert a == f"{MODELS['a'][3, i]:.2f} °C".replace("-", "−")
        low, high = BAND[3, i]
        assert b == f"{MODELS['b'][3, i]:.2f} °C ({low:.2f} to {high:.2f})".replace("-", "−")
    assert page.locator(".plot circle").count() == 3
    assert rows(43) == [LABELS[43], "known", f"{VALUES[43]:.2f}\xa0°C".replace("-", "−")]
    assert rows(29) == [LABELS[29], "known", "missing"]
    assert rows(51) == [LABELS[51], "what came", f"{VALUES[51]:.2f}\xa0°C".replace("-", "−")]
    page.mouse.move(0, 0)
    assert page.locator(".tip").is_hidden()
    assert page.locator(".plot circle").count() == 0
    assert page.errors == []


@pytest.mark.browser
def test_the_best_possible_does_not_compete(browser):
    true = np.where(np.isnan(VALUES[AHEAD]), 0, VALUES[AHEAD])
    page = open_page(browser, Forecast(**GIVEN, best=true + 0.25))
    best = min(MODELS, key=lambda name: TRUE[name][3])
    assert f"Lowest mean absolute error: {best}, " in said(page)
    assert "Best possible: 0.25 °C, over all cuts 0.25 °C." in said(page)
    assert table_rows(page.locator("table"))[-1] == ("best possible", "0.25", "0.25", "", "")
    assert page.locator("tr:last-child .least").count() == 0
    for name in MODELS:
        page.get_by_role("button", name=name, exact=True).click()
    page.mouse.move(0, 0)
    assert "Best possible: 0.25 °C" in said(page)
    assert "mean absolute error" not in said(page)


@pytest.mark.browser
def test_one_cut_one_value_and_a_series_that_does_not_change(browser):
    for values in (np.full(9, 3.0), np.full(9, np.nan)):
        page = open_page(browser, Forecast(values, {"a": [[3.0]]}, [4], bands={"a": [[[3.0, 3.0]]]}))
        assert slider(page).count() == 0
        assert status(page).startswith("Forecast from time step 4 on (cut 1 of 1).")
        (points,) = drawn(page, "forecast")
        assert points.shape == (1, 2)
        assert "h0" in page.locator(".plot path.forecast").get_attribute("d")
        box = page.locator(".plot").bounding_box()
        page.mouse.move(box["x"] + 100, box["y"] + 100)
        page.mouse.down()
        page.mouse.move(box["x"] + 200, box["y"] + 100)
        page.mouse.up()
        page.mouse.move(0, 0)
        known = not np.isnan(values[0])
        wanted = ("a", "0.00", "0.00", "100.0\xa0%", "100.0\xa0%") if known else ("a", "–", "–", "–", "–")
        assert table_rows(page.locator("table")) == [wanted]
        assert "NaN" not in page.locator(".plot").inner_html()
        assert page.errors == []


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible_in_both_themes(browser, scheme):
    page = accessible(browser, Forecast(**GIVEN, labels=LABELS, best=MODELS["a"]), scheme)
    page.get_by_role("button", name="b", exact=True).click()
    box = page.locator(".plot").bounding_box()
    page.mouse.move(box["x"] + 600, box["y"] + 100)
    assert violations(page) == []


@pytest.mark.browser
def test_texts_are_text_and_the_static_picture_stays(browser):
    widget = Forecast(VALUES, {EVIL: MODELS["a"]}, CUTS, bands={EVIL: BAND}, labels=[EVIL] * T, unit=EVIL, title=EVIL)
    page = open_page(browser, widget)
    box = page.locator(".plot").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 100)
    harmless(page, ".ck img, .ck strong *")
    assert page.locator(".ck strong").inner_text() == EVIL
    still = page_of(browser, widget._repr_html_(), scripts=False)
    assert still.locator("tbody th").inner_text() == EVIL


@pytest.mark.browser
@pytest.mark.parametrize("scripts", [True, False])
def test_a_phone_is_wide_enough(browser, scripts):
    names = ["the value of the day before", "a_name_of_one_very_long_word_that_does_not_break", "c", "Transformer"]
    models = {name: 1e5 * MODELS["a"] + i for i, name in enumerate(names)}
    bands = {names[1]: np.stack([models[names[1]] - 1, models[names[1]] + 1e5], axis=-1)}
    labels = [f"Wed 2024-05-{t:02d} 06:00" for t in range(T)]
    widget = Forecast(1e5 * VALUES, models, CUTS, bands=bands, labels=labels, unit="kWh per household")

    def point(share):
        def step(page):
            box = page.locator(".plot").bounding_box()
            page.mouse.move(box["x"] + box["width"] * share, box["y"] + 60)
            tip = page.locator(".tip")
            assert tip.is_visible()
            left, width = (tip.bounding_box()[key] for key in ("x", "width"))
            assert left >= 0
            assert left + width <= 390

        return step

    def end(page):
        slider(page).press("End")

    steps = [end, *(point(share) for share in (0.3, 0.48, 0.52, 0.86, 0.95))]
    fits_a_phone(browser, widget, scripts, *steps)


@pytest.mark.browser
@pytest.mark.parametrize("width", [900, 390])
@pytest.mark.parametrize("labels", [None, LABELS, [f"Wed 2024-05-{t:02d} 06:00" for t in range(T)]])
def test_ticks_are_whole_and_apart_and_the_unit_is_there(browser, width, labels):
    page = open_page(
        browser, Forecast(1e4 * VALUES, {"a": 1e4 * MODELS["a"]}, CUTS, labels=labels, unit="MW"), width=width
    )
    for k in range(K):
        to_cut(page, k)
        plot = page.locator(".plot").bounding_box()
        ticks = page.locator(".plot text").evaluate_all(
            """all => all.map(x => {
              const {left, right, top, bottom} = x.getBoundingClientRect();
              return [left, right, top, bottom, x.textContent];
            })"""
        )
        assert len(ticks) >= 6
        for i, (left, right, top, bottom, text) in enumerate(ticks):
            assert plot["x"] - 0.5 <= left, text
            assert right <= plot["x"] + plot["width"] + 0.5, text
            assert plot["y"] - 0.5 <= top, text
            assert bottom <= plot["y"] + plot["height"] + 0.5, text
            for other in ticks[:i]:
                overlap = min(right, other[1]) - max(left, other[0]), min(bottom, other[3]) - max(top, other[2])
                assert min(overlap) <= 1, (text, other[4])
    texts = page.locator(".plot text").all_text_contents()
    assert "MW" in texts
    assert ("time step" in texts) == (labels is None)


@pytest.mark.browser
def test_live_new_data_keep_the_cut_while_the_cuts_stay(browser):
    page = live_page(browser, "forecast", Forecast(**GIVEN).data)
    to_cut(page, 6)
    page.get_by_role("button", name="c", exact=True).click()
    page.mouse.move(0, 0)
    better = {name: rows + 1 for name, rows in MODELS.items()}
    tell(page, Forecast(**GIVEN | {"forecasts": better}).data)
    assert cut_of(page) == 6
    assert page.get_by_role("button", name="c", exact=True).get_attribute("aria-pressed") == "false"
    assert len(drawn(page, "forecast")) == 2
    is_drawn(page, "forecast", 0, AHEAD[6], better["a"][6])
    tell(page, Forecast(VALUES, {"z": MODELS["a"][:3, :4]}, CUTS[:3]).data)
    assert cut_of(page) == 1
    is_drawn(page, "forecast", 0, AHEAD[1, :4], MODELS["a"][1, :4])
    assert page.get_by_role("button").all_inner_texts() == ["z"]
    assert slider(page).get_attribute("max") == "2"
    assert page.errors == []


@pytest.mark.browser
def test_the_picture_takes_the_width_that_it_is_given(browser):
    """Notebooks fill an output before it is on the page, and windows change."""
    page = page_of(browser, f"<div id=later style='display:none'>{Forecast(**GIVEN)._repr_html_()}</div>")
    page.wait_for_function("document.querySelector('.ck .plot svg')")
    page.evaluate("document.getElementById('later').style.display = ''")
    for width in (900, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(
            "(() => { const p = document.querySelector('.ck .plot'); "
            "return p.querySelector('svg').viewBox.baseVal.width === p.clientWidth; })()"
        )
    fits(page, 390)
