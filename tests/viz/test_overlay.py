import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from coursekit.evaluate.features import keep_mass, segment
from coursekit.viz import Overlay, overlay
from tests.viz.page import (
    EVIL,
    accessible,
    alert,
    asked_of,
    fits,
    harmless,
    keeps_its_keys,
    live_page,
    page_of,
    status,
    table_rows,
    tell,
    told,
    violations,
)

n, SIDE, P, N = 3, 24, 4, 36
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (n, 3, SIDE, SIDE), dtype=np.uint8)


def discs() -> np.ndarray:
    at = np.arange(SIDE)
    return np.stack([(at[:, None] - 8 - i) ** 2 + (at - 13) ** 2 < (4 + 2 * i) ** 2 for i in range(n)])


def drawn(H: int, seed: int = 1) -> np.ndarray:
    """Weights that do not sum to 1, many of them equal."""
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 6, (n, H, N)) / 97 + (rng.random((n, H, N)) < 0.1) * rng.random((n, H, N))).astype("f4")


MASKS = discs()
WEIGHTS = drawn(4)
GIVEN = {"images": IMAGES, "attention": WEIGHTS, "masks": MASKS}
BOTH = {"images": IMAGES, "masks": MASKS, "models": {"DINO": WEIGHTS, "<b>other": drawn(2, 2)}}


def segmented(weights: np.ndarray, mass: float):
    """By the package, which expects the class token in front."""
    full = torch.zeros(n, weights.shape[1], N + 1, N + 1)
    full[:, :, 0, 1:] = torch.tensor(weights)
    return segment(full, torch.tensor(MASKS), P, mass)


@pytest.mark.parametrize("mass", [0.01, 0.25, 0.6, 0.99, 1.0])
def test_kept_are_the_patches_that_the_package_keeps(mass):
    rng = np.random.default_rng(int(100 * mass))
    for weights in (WEIGHTS, rng.random((5, 3, 50)).astype("f4"), np.ones((2, 1, 40), "f4")):
        wanted = keep_mass(torch.tensor(weights), mass).numpy()
        np.testing.assert_array_equal(overlay.keep(weights, mass), wanted)
    np.testing.assert_allclose(
        Overlay(**GIVEN, mass=mass).jaccard(WEIGHTS), segmented(WEIGHTS, mass).jaccard.numpy(), atol=1e-6
    )


def test_tensors_of_any_kind_are_held_in_float32():
    weights = torch.tensor(WEIGHTS).bfloat16().requires_grad_()
    widget = Overlay(torch.tensor(IMAGES) / 255, weights, torch.tensor(MASKS))
    np.testing.assert_array_equal(widget.weights[0], weights.detach().float().numpy())
    assert widget.data["images"] == Overlay(**GIVEN).data["images"]


def test_the_mean_of_the_heads_is_in_front_of_them():
    """Catches a mean of other rows, one per picture instead of per head, and names that are off by one."""
    widget = Overlay(**BOTH, mean=True)
    for found, given in zip(widget.weights, BOTH["models"].values()):
        np.testing.assert_allclose(found[:, 0], given.mean(axis=1), rtol=1e-5)
        np.testing.assert_array_equal(found[:, 1:], given)
    assert [widget.name(k) for k in (0, 1, 4)] == ["mean of heads", "head 0", "head 3"]
    assert Overlay(**BOTH).name(0) == "head 0"
    assert "mean of heads" in widget.static_html()


@pytest.mark.browser
def test_it_opens_on_the_mean_beside_the_plain_image(browser):
    page = open_page(browser, Overlay(**BOTH, mean=True))
    assert "mean of heads: 60 %" in status(page)
    np.testing.assert_allclose(
        shown_jaccards(page),
        Overlay(**BOTH, mean=True).jaccard(np.concatenate([WEIGHTS.mean(axis=1, keepdims=True), WEIGHTS], axis=1))[0],
        atol=0.000501,
    )
    page.get_by_role("button", name="Image 1").click()
    assert page.locator(".plain img").get_attribute("src") == page.locator(".large img").get_attribute("src")
    assert page.locator(".plain canvas").count() == 0, "nothing lies over it"
    page.locator(".heads button").nth(1).click()
    assert "head 0: 60 %" in status(page)


def wrong(at: int, to: float) -> dict:
    weights = WEIGHTS.copy()
    weights[1, 2, at:] = to
    return {"attention": weights}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"images": IMAGES[0]}, r"images has shape \(3, 24, 24\): must be \(n, 3, height, width\)"),
        ({"images": IMAGES[:2]}, r"attention has shape \(3, 4, 36\): must be \(2, heads, patches\), for 2 images"),
        ({"images": IMAGES / 200}, r"images\[0\] goes from .*: floats must lie in 0\.\.1"),
        ({"attention": None}, "give the weights either as attention= or as models="),
        ({"attention": None, "models": {}}, "either as attention= or as models="),
        ({"models": {"DINO": WEIGHTS}}, "either as attention= or as models="),
        ({"attention": WEIGHTS[0]}, r"attention has shape \(4, 36\): must be \(3, heads, patches\)"),
        ({"attention": WEIGHTS[:, :, :30]}, "30 tokens: 24 x 24 pixels are not cut into 30 square patches"),
        ({"attention": np.ones((n, 4, 37))}, r"37 weights .* on 36 patches .*: leave out .* attention\[:, :, 1:\]"),
        (wrong(3, -1e-3), "attention: weights must be finite and not negative, and of no head all zero"),
        (wrong(3, np.nan), "must be finite"),
        (wrong(3, np.inf), "must be finite"),
        (wrong(0, 0), "of no head all zero"),
        ({"masks": MASKS[:2]}, r"masks has shape \(2, 24, 24\): must be \(3, 24, 24\), as the images"),
        ({"masks": MASKS.astype(int)}, "masks is of int64: must be boolean"),
        ({"mass": 0}, r"mass=0: must lie in 0\.01\.\.1, in whole percent"),
        ({"mass": 1.01}, r"mass=1\.01"),
        ({"mass": 0.625}, "in whole percent"),
        (
            {"attention": None, "models": {"a": WEIGHTS, "b": np.ones((n, 2, 9))}},
            r"weights on \[36, 9\] patches: must be as many for all models",
        ),
        ({"attention": None, "models": {"a": WEIGHTS, "b": WEIGHTS[0]}}, r"models\['b'\] has shape \(4, 36\)"),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says):
        Overlay(**GIVEN | change)


def test_what_does_not_fit_is_refused_with_what_would_do(monkeypatch):
    monkeypatch.setattr(overlay, "ROOM", 8_000)
    with pytest.raises(ValueError, match=r"3 images of 24 x 24 pixels with weights of 1 models take .*images\[:1\]"):
        Overlay(**GIVEN)


def test_two_large_models_on_24_images_fit():
    rng = np.random.default_rng(0)
    images = rng.random((24, 3, 64, 64))
    masks = np.kron(rng.random((24, 8, 8)) > 0.5, np.ones((8, 8), dtype=bool))
    widget = Overlay(images, masks=masks, models={name: rng.random((24, 6, 256)) for name in "ab"})
    assert len(widget._repr_html_()) < 1_000_000


def open_page(browser, widget, **kwargs):
    page = page_of(browser, widget._repr_html_(), **kwargs)
    page.locator(".ck [aria-live]").wait_for()
    return page


def shown_jaccards(page) -> list[float]:
    return [float(text) for text in page.locator(".heads .number").all_inner_texts()]


def set_to(page, name: str, value: int) -> None:
    """Move a slider, as a pointer does."""
    page.get_by_role("slider", name=name).evaluate(
        "(range, value) => { range.value = value; range.dispatchEvent(new Event('input')); }", value
    )


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("mass", [1, 10, 37, 60, 90, 100])
def test_jaccards_and_kept_patches_are_the_packages(browser, mass):
    page = open_page(browser, Overlay(**BOTH))
    set_to(page, "Share of weight", mass)
    for model, weights in zip(BOTH["models"], BOTH["models"].values()):
        page.get_by_role("button", name=model).click()
        true = segmented(weights, mass / 100)
        kept = keep_mass(torch.tensor(weights), mass / 100)
        for i in range(n):
            page.get_by_role("button", name=f"Image {i}").click()
            np.testing.assert_allclose(shown_jaccards(page), true.jaccard[i], atol=0.000501)
            for head in range(weights.shape[1]):
                page.locator(".heads button").nth(head).click()
                said = status(page)
                count = int(kept[i, head].sum())
                assert said.startswith(
                    f"{model}, image {i}, head {head}: {mass} % of the weight lies on {count} of 36 patches;"
                )
                one, mean = (float(part.split(")")[0]) for part in (said.split()[-7], said.rstrip(".").split()[-1]))
                assert abs(one - true.jaccard[i, head]) <= 0.000501
                assert abs(mean - true.per_head[head]) <= 0.000501
                assert inside(page) == sorted(np.flatnonzero(kept[i, head].numpy()).tolist())
    assert page.errors == []


def inside(page) -> list[int]:
    """The patches within the orange line: those with an odd number of its pieces on the way from the left."""
    return page.locator(".large .kept").evaluate(
        """(path, [side, count]) => {
          const upright = [...path.getAttribute('d').matchAll(/M(\\d+) (\\d+)v/g)]
            .map(([, ...at]) => at.map((x) => x / side));
          return Array.from({length: count ** 2}, (_, p) => p).filter((p) => upright.filter(
            ([x, y]) => y === Math.floor(p / count) && x <= p % count).length % 2);
        }""",
        [P, SIDE // P],
    )


@pytest.mark.browser
def test_colours_are_the_weights_and_opacity_is_what_the_slider_says(browser):
    page = open_page(browser, Overlay(**GIVEN))
    page.locator(".heads button").nth(3).click()
    script = "canvas => Array.from(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data)"
    colours = np.array(page.locator(".large canvas").evaluate(script)).reshape(N, 4)[:, :3]
    weights = WEIGHTS[0, 3]
    assert (colours[weights == weights.max()] == [253, 231, 37]).all()
    assert (colours[weights == 0] == [68, 1, 84]).all()
    brightness = colours @ [0.299, 0.587, 0.114]
    assert (np.diff(brightness[np.argsort(weights)]) >= -1).all(), "lighter where there is more weight"
    small = page.locator(".heads canvas").nth(3).evaluate(script)
    np.testing.assert_array_equal(np.array(small).reshape(N, 4)[:, :3], colours)
    assert f"{weights.max():.4f}" in page.locator(".legend").inner_text()
    set_to(page, "Heat map", 0)
    assert page.locator(".large canvas").evaluate("canvas => canvas.style.opacity") == "0"
    assert page.locator(".large .heated").count() == 0


@pytest.mark.browser
def test_without_masks_there_is_no_jaccard(browser):
    page = open_page(browser, Overlay(IMAGES[:1], WEIGHTS[:1]))
    assert status(page) == f"Head 0: 60 % of the weight lies on {overlay.keep(WEIGHTS[0, 0], 0.6).sum()} of 36 patches."
    assert "Jaccard" not in page.locator(".ck").inner_text()
    assert page.locator(".outline").count() == 0
    assert page.locator(".strip").is_hidden()
    still = page_of(browser, Overlay(IMAGES, WEIGHTS)._repr_html_(), scripts=False)
    (row,) = table_rows(still.locator("table"))
    np.testing.assert_allclose(
        [float(x) for x in row[1:]], overlay.keep(WEIGHTS, 0.6).sum(axis=2).mean(axis=0), atol=0.0501
    )


@pytest.mark.browser
def test_keyboard_alone_is_enough(browser):
    page = open_page(browser, Overlay(**BOTH))
    for keys, begins in [
        (["Tab", "ArrowRight", "ArrowRight"], "DINO, image 2, head 0: 60 %"),
        (["Tab", "ArrowRight"], "<b>other, image 2, head 0: 60 %"),
        (["ArrowLeft", "Tab", "ArrowLeft", "ArrowLeft"], "DINO, image 2, head 0: 58 %"),
        (["Tab", "Home"], "DINO, image 2, head 0: 58 %"),
        (["Tab", "End"], "DINO, image 2, head 3: 58 %"),
    ]:
        for key in keys:
            page.keyboard.press(key)
        assert status(page).startswith(begins)
    page.get_by_role("button", name="<b>other").click()
    assert status(page).startswith("<b>other, image 2, head 1: 58 %"), "it has but two heads"
    slider = page.get_by_role("slider", name="Share of weight")
    assert slider.get_attribute("aria-valuetext") == "58 %"
    keeps_its_keys(page, slider, ["ArrowDown", "Home"])
    assert page.errors == []
    page = open_page(browser, Overlay(**BOTH))
    keeps_its_keys(page, page.locator(".heads button").first, ["ArrowDown", "End"])


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible_in_both_themes(browser, scheme):
    accessible(browser, Overlay(**BOTH), scheme)


@pytest.mark.browser
def test_titles_are_text_and_the_static_picture_stays(browser):
    widget = Overlay(IMAGES, masks=MASKS, models={EVIL: WEIGHTS, "b": drawn(2, 2)}, title=EVIL)
    page = open_page(browser, widget)
    harmless(page, ".ck img[src=x], .ck strong *")
    assert page.locator(".ck strong").inner_text() == EVIL
    still = page_of(browser, widget._repr_html_(), scripts=False, width=390)
    assert still.get_by_role("img").count() == 1 + 4
    rows = table_rows(still.locator("table"))
    assert [row[0] for row in rows] == [EVIL, "b"]
    for row, weights in zip(rows, (WEIGHTS, drawn(2, 2))):
        shown = [float(x) for x in row[1:] if x]
        np.testing.assert_allclose(shown, segmented(weights, 0.6).per_head, atol=0.000501)
    captions = still.locator("figcaption").all_inner_texts()[1:]
    shown = [float(text.split()[-1]) for text in captions]
    np.testing.assert_allclose(shown, segmented(WEIGHTS, 0.6).jaccard[0], atol=0.000501)
    fits(still, 390)


@pytest.mark.browser
def test_a_phone_is_wide_enough(browser):
    rng = np.random.default_rng(0)
    widget = Overlay(rng.random((24, 3, 16, 16)), rng.random((24, 12, 16)), rng.random((24, 16, 16)) > 0.5)
    fits(open_page(browser, widget, width=390), 390)


@pytest.mark.browser
def test_live_new_data_take_the_place_of_the_old(browser):
    page = live_page(browser, "overlay", Overlay(**BOTH).data)
    page.get_by_role("button", name="<b>other").click()
    page.evaluate("(data) => view.update(data)", Overlay(**GIVEN, mass=0.5).data)
    assert status(page).startswith("Image 0, head 0: 50 %")
    assert page.get_by_role("button", name="DINO").count() == 0
    assert page.errors == []


def looks(picture) -> dict[str, np.ndarray]:
    """Weights that grow with the red of each patch; black pictures are refused."""
    assert picture.shape == (3, SIDE, SIDE)
    if not picture.any():
        raise ValueError("too dark to see")
    red = picture[0].reshape(6, 4, 6, 4).mean(axis=(1, 3)).reshape(N) + 1
    return {"DINO": np.outer([1, 2, 3, 4], red), "<b>other": np.outer([5, 6], red)}


def sent(picture: np.ndarray, turn: int = 1) -> dict:
    return {"pixels": base64.b64encode(picture.transpose(1, 2, 0).tobytes()).decode(), "turn": turn}


@pytest.mark.parametrize("mean", [False, True])
def test_a_picture_of_the_reader_comes_last_and_has_no_object(mean):
    """Catches colours in another order, rows and columns exchanged, a mean that is not that of the new picture."""
    widget = Overlay(**BOTH, mean=mean)
    mine = np.random.default_rng(5).integers(0, 256, (3, SIDE, SIDE), dtype=np.uint8)
    message = sent(mine)
    data = asked_of(widget.live(looks), message)
    assert data["asked"] == message
    assert (data["error"], data["inside"][n:], data["outlines"][n:]) == ("", [None], [None])
    raw = base64.b64decode(data["images"][n].split(",")[1])
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(raw))).transpose(2, 0, 1), mine)
    for packed, old, new in zip(data["weights"], widget.weights, looks(mine).values()):
        found = np.frombuffer(base64.b64decode(packed["float32"]), "<f4").reshape(packed["shape"])
        np.testing.assert_array_equal(found[:n], old)
        np.testing.assert_allclose(found[n, mean:], new, rtol=1e-6)
        if mean:
            np.testing.assert_allclose(found[n, 0], new.mean(axis=0), rtol=1e-6)
    assert len(widget.data["images"]) == n, "what was answered belongs to the view"


def test_what_the_reader_cannot_look_at_is_said():
    data = asked_of(Overlay(**BOTH).live(looks), sent(np.zeros((3, SIDE, SIDE), np.uint8)))
    assert data["error"] == "too dark to see"
    assert len(data["images"]) == n


@pytest.mark.browser
def test_live_who_draws_on_before_the_answer_loses_nothing(browser):
    page = live_page(browser, "overlay", Overlay(**BOTH).data)
    page.get_by_label("Colour").fill("#0000ff")
    page.get_by_role("button", name="Fill").click()
    page.get_by_label("Colour").fill("#00ff00")
    page.get_by_role("button", name="Draw on it").click()
    box = page.locator(".large .picture").bounding_box()
    for share in (0.25, 0.75):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + share * box["height"])
        page.mouse.down()
        page.mouse.up()
    page.wait_for_function("window.sent.length === 3")
    pixels = np.frombuffer(base64.b64decode(page.evaluate("window.sent[2].pixels")), np.uint8).reshape(SIDE, SIDE, 3)
    assert pixels[SIDE // 2, 0].tolist() == [0, 0, 255]
    for place in (SIDE // 4, 3 * SIDE // 4):
        assert pixels[place - 1 : place + 1, place - 1 : place + 1, 1].max() > 150


@pytest.mark.browser
def test_live_a_picture_is_loaded_or_drawn_and_what_was_chosen_stays(browser, tmp_path):
    view = Overlay(**BOTH).live(looks)
    page = live_page(browser, "overlay", Overlay(**BOTH).data)
    page.get_by_role("button", name="<b>other").click()
    page.locator(".heads button").nth(1).click()
    wide = np.zeros((SIDE, 3 * SIDE, 3), np.uint8)
    wide[:, SIDE : 2 * SIDE] = (200, 10, 20)  # its middle is what is taken
    Image.fromarray(wide).save(tmp_path / "wide.png")
    page.get_by_label("Load a picture").set_input_files(tmp_path / "wide.png")
    page.wait_for_function("window.sent.length === 1")
    pixels = np.frombuffer(base64.b64decode(page.evaluate("window.sent[0].pixels")), np.uint8)
    assert np.abs(pixels.reshape(-1, 3).astype(int) - (200, 10, 20)).max() <= 2
    told(page, view)
    assert status(page).startswith("<b>other, your picture, head 1: 60 %")
    assert page.get_by_role("button", name="Your picture").count() == 1
    assert "Jaccard" not in status(page)
    assert page.get_by_label("Load a picture").input_value().endswith("wide.png")
    page.locator(".strip button").first.click()
    assert page.get_by_label("Load a picture").input_value() == "", "what is named is what is shown"
    assert "Jaccard" in status(page)
    page.locator(".strip button").nth(3).click()
    page.get_by_label("Colour").fill("#0000ff")
    page.get_by_role("button", name="Draw on it").click()
    assert page.get_by_label("Heat map").input_value() == "0", "one sees what one draws on"
    box = page.locator(".large .picture").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 4)
    page.mouse.down(button="right")
    page.mouse.up(button="right")
    assert page.evaluate("window.sent.length") == 1, "the other buttons have other uses"
    page.mouse.down()
    page.mouse.up()
    page.wait_for_function("window.sent.length === 2")
    page.get_by_label("Share of weight").fill("40")
    assert status(page) == "Looking …"
    page.get_by_label("Share of weight").fill("60")
    pixels = np.frombuffer(base64.b64decode(page.evaluate("window.sent[1].pixels")), np.uint8).reshape(SIDE, SIDE, 3)
    assert pixels[5:7, 5:7, 2].min() > 150 > pixels[5:7, 5:7, 0].max(), "a point of two pixels"
    assert np.abs(pixels[20, 20].astype(int) - (200, 10, 20)).max() <= 2, "the rest is the picture as it was"
    page.get_by_label("Colour").fill("#000000")
    page.get_by_role("button", name="Fill").click()
    page.wait_for_function("window.sent.length === 3")
    tell(page, asked_of(view, page.evaluate("window.sent[1]")))
    assert status(page) == "Looking …", "a late answer is not taken for the newest"
    told(page, view)
    assert alert(page) == "too dark to see"
    page.get_by_label("Colour").fill("#0000ff")
    page.get_by_role("button", name="Fill").click()
    page.wait_for_function("window.sent.length === 4")
    page.locator(".strip button").nth(1).click()
    told(page, view)
    assert status(page).startswith("<b>other, image 1,"), "what was chosen meanwhile stays"
    assert page.get_by_role("button", name="Your picture").count() == 1
    (tmp_path / "bad.png").write_text("no picture", encoding="utf-8")
    page.get_by_label("Load a picture").set_input_files(tmp_path / "bad.png")
    page.wait_for_function("document.querySelector('[role=alert]').textContent.includes('PNG or a JPEG')")
    assert page.get_by_label("Load a picture").input_value() == "", "what is named is what is shown"
    page.get_by_role("button", name="Draw on it").click()
    assert page.get_by_label("Heat map").input_value() == "60", "as it was before"
    assert violations(page, "#there") == []
    page.set_viewport_size({"width": 390, "height": 900})
    fits(page, 390)
    assert page.errors == []
