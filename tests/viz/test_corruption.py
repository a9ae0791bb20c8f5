import base64
import zlib

import numpy as np
import pytest
import torch

from coursekit.data.augment import greyscale
from coursekit.data.corrupt import corrupted_views, cover, draw_others, draw_views, replace, rotate
from coursekit.viz import Corruption, corruption
from tests.viz.page import EVIL, accessible, fits, harmless, keeps_its_keys, live_page, page_of, status, table_rows

n, S = 4, 20


def drawn() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(n, 3, 26, 26, generator=generator)
    views = draw_views(n, 26, 26, generator, size=S, sigma=(0.1, 1.0))
    clean = corrupted_views(images, views)["clean"][:, 0]
    others = clean[draw_others(n, generator)]
    return {"clean": clean, "noise": views["noise"][:, 0], "other": others, "blocks": views["blocks"][:, 0]}


GIVEN = {name: (x * 255).round().byte() if x.is_floating_point() else x for name, x in drawn().items()}
COUNTS = [int((blocks[:, 2] > 0).sum()) for blocks in GIVEN["blocks"]]


def wanted(i: int, k: int, fill: str = "noise", turns: int = 0, grey: bool = False) -> tuple[np.ndarray, ...]:
    """Clean view, mask and corrupted view as the package makes them: (S, S, 3), (S, S), (S, S, 3) in 0..255."""
    clean = rotate(GIVEN["clean"][i : i + 1] / 255, torch.tensor([turns]))
    masks = cover(GIVEN["blocks"][i : i + 1, :k], S, S)
    corrupted = greyscale(replace(clean, masks, GIVEN[fill][i : i + 1] / 255), torch.tensor([grey]))
    as_shown = [255 * x[0].permute(1, 2, 0).numpy() for x in (clean, corrupted)]
    return as_shown[0], masks[0].numpy(), as_shown[1]


def test_there_is_an_image_with_padding_and_blocks_overlap():
    assert len(set(COUNTS)) > 1
    assert any(GIVEN["blocks"][i, :, 2:].prod(dim=1).sum() > wanted(i, 99)[1].sum() for i in range(n))


def test_pixels_and_blocks_are_those_given():
    widget = Corruption(**GIVEN)
    for name in ("clean", "noise", "other"):
        packed = widget.data[name]
        held = np.frombuffer(zlib.decompress(base64.b64decode(packed["deflated"])), np.uint8).reshape(packed["shape"])
        np.testing.assert_array_equal(held, GIVEN[name].permute(0, 2, 3, 1).numpy())
    assert [len(blocks) for blocks in widget.data["blocks"]] == COUNTS
    np.testing.assert_array_equal(widget.masks, cover(GIVEN["blocks"], S, S).numpy())


def test_half_of_the_last_digit_is_rounded_upwards():
    assert [corruption.percent(count, 1024) for count in (0, 64, 63, 65, 1024)] == [
        "0.0 %",
        "6.3 %",
        "6.2 %",
        "6.3 %",
        "100.0 %",
    ]
    for count in range(1025):
        assert abs(float(corruption.percent(count, 1024)[:-2]) - count / 10.24) <= 0.05 + 1e-12


def test_floats_and_arrays_are_welcome():
    floats = Corruption(**{name: x.numpy() if name == "blocks" else (x / 255).numpy() for name, x in GIVEN.items()})
    assert floats.data == Corruption(**GIVEN).data


def changed(i: int, block: list[int]) -> dict:
    blocks = GIVEN["blocks"].clone()
    blocks[i, 0] = torch.tensor(block)
    return {"blocks": blocks}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"clean": GIVEN["clean"][0]}, r"clean has shape \(3, 20, 20\): must be \(n, 3, height, width\)"),
        ({"clean": GIVEN["clean"][:, :, :18]}, "clean: images of 18 x 20 pixels: must be square to be turned"),
        ({"noise": GIVEN["noise"] / 100}, r"noise\[0\] goes from .*: floats must lie in 0\.\.1"),
        ({"noise": GIVEN["noise"].long()}, r"noise\[0\] is of int64"),
        ({"noise": GIVEN["noise"][:3]}, r"noise has shape \(3, 3, 20, 20\): must be \(4, 3, 20, 20\), as the others"),
        ({"other": GIVEN["other"][..., :9]}, r"other has shape \(4, 3, 20, 9\): must be \(4, 3, 20, 20\)"),
        ({"blocks": GIVEN["blocks"][:3]}, r"blocks has shape .*: must be \(4, K, 4\), top, left, height and width"),
        ({"blocks": GIVEN["blocks"][..., :3]}, r"must be \(4, K, 4\)"),
        ({"blocks": GIVEN["blocks"].float()}, "blocks is of float32: must be whole numbers of pixels"),
        (changed(2, [16, 0, 5, 2]), r"blocks\[2, 0\]=\[16, 0, 5, 2\]: must lie within images of 20 x 20 pixels"),
        (changed(1, [0, 19, 5, 2]), r"blocks\[1, 0\]=\[0, 19, 5, 2\]: must lie within"),
        (changed(1, [-1, 0, 5, 2]), r"blocks\[1, 0\].*must lie within"),
        (changed(1, [0, 0, -1, 2]), r"blocks\[1, 0\].*must lie within"),
        (changed(1, [0, 0, 2, 0]), r"blocks\[1, 0\].*must lie within"),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says):
        Corruption(**GIVEN | change)


def test_what_does_not_fit_is_refused_with_what_would_do(monkeypatch):
    monkeypatch.setattr(corruption, "ROOM", 10_000)
    with pytest.raises(ValueError, match=r"4 images of 20 x 20 pixels take .* fewer \(clean\[:2\]\) or smaller ones"):
        Corruption(**GIVEN)


def test_twelve_images_fit():
    rng = np.random.default_rng(0)
    noise = rng.random((12, 3, 64, 64))
    assert len(Corruption(noise, noise, noise, np.zeros((12, 1, 4), dtype=int))._repr_html_()) < 1_000_000


def open_page(browser, widget, **kwargs):
    page = page_of(browser, widget._repr_html_(), **kwargs)
    page.locator(".ck [aria-live]").wait_for()
    return page


def painted(page) -> list[np.ndarray]:
    """What the three pictures show, (S, S, 3) each."""
    script = "all => all.map(c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data))"
    return [np.array(x).reshape(S, S, 4)[:, :, :3] for x in page.locator(".views canvas").evaluate_all(script)]


def pick(page, group: str, name: str) -> None:
    page.get_by_role("group", name=group).get_by_role("button", name=name, exact=True).click()


def set_blocks(page, k: int) -> None:
    page.get_by_role("slider", name="Blocks").evaluate(
        "(range, k) => { range.value = k; range.dispatchEvent(new Event('input')); }", k
    )


@pytest.mark.browser
def test_pictures_and_shares_are_the_packages(browser):
    page = open_page(browser, Corruption(**GIVEN))
    rng = np.random.default_rng(1)
    for case in range(16):
        i, turns = int(rng.integers(n)), case % 4
        k, fill, grey = int(rng.integers(COUNTS[i] + 1)), ("noise", "other")[case // 4 % 2], case % 3 == 0
        k = {0: COUNTS[i], 1: 0}.get(case, k)
        page.get_by_role("button", name=f"Image {i}").click()
        pick(page, "Quarter turns", str(turns))
        pick(page, "Filled with", {"noise": "noise", "other": "the other image"}[fill])
        button = page.get_by_role("button", name="Grey")
        if (button.get_attribute("aria-pressed") == "true") != grey:
            button.click()
        set_blocks(page, k)
        clean, mask, corrupted = wanted(i, k, fill, turns, grey)
        seen = painted(page)
        np.testing.assert_allclose(seen[0], clean, atol=1e-3)
        np.testing.assert_array_equal(seen[1][..., 0] == 255, mask)
        np.testing.assert_allclose(seen[2], corrupted, atol=0.501)
        count, _, total, _, share, _ = page.locator("figcaption .number").inner_text().split()
        assert (int(count), int(total)) == (mask.sum(), mask.size)
        assert abs(float(share) - 100 * mask.mean()) <= 0.0501
        assert page.locator("output").inner_text() == f"{k} of {COUNTS[i]}"
        said = status(page)
        assert said.startswith(f"Image {i}")
        assert (f"turned by {90 * turns}°" in said) == (turns > 0)
        assert ("grey" in said) == grey
        assert (f"{k} block" in said and f"{share} % of it" in said) or (k == 0 and "nothing is covered" in said)
        if k:
            last = page.locator(".last")
            shown = [int(last.get_attribute(name)) for name in ("y", "x", "height", "width")]
            assert shown == GIVEN["blocks"][i, k - 1].tolist()
    assert page.errors == []


@pytest.mark.browser
def test_a_full_image_and_thousands_of_pixels(browser):
    image = np.zeros((1, 3, 40, 40))
    blocks = np.array([[[0, 0, 40, 40], [3, 3, 2, 2]]])
    page = open_page(browser, Corruption(image, image + 1, image, blocks))
    assert page.locator("figcaption .number").inner_text() == "1,600 of 1,600 pixels, 100.0\xa0%"
    assert status(page) == "Image 0: 2 blocks cover 100.0 % of it with noise."
    assert page.locator(".strip").is_hidden()
    empty = open_page(browser, Corruption(image, image, image, blocks * 0))
    assert status(empty) == "Image 0: nothing is covered."


@pytest.mark.browser
def test_keyboard_alone_is_enough(browser):
    page = open_page(browser, Corruption(**GIVEN))
    k = COUNTS[1] - 1
    share = corruption.percent(int(wanted(1, k)[1].sum()), S * S)
    for keys, says in [
        (["Tab", "ArrowRight"], f"Image 1: {k + 1} blocks cover"),
        (["Tab", "ArrowLeft"], f"Image 1: {k} blocks cover {share} of it with noise."),
        (["Tab", "ArrowDown"], f"Image 1: {k} blocks cover {share} of it with another image."),
        (["Tab", "End"], "Image 1, turned by 270° anticlockwise:"),
        (["ArrowLeft"], "Image 1, turned by 180°:"),  # whichever way
        (["ArrowRight"], "Image 1, turned by 270° anticlockwise:"),
        (["Tab", "Enter"], "Image 1, turned by 270° anticlockwise, grey:"),
    ]:
        for key in keys:
            page.keyboard.press(key)
        assert status(page).startswith(says)
    assert page.get_by_role("slider").get_attribute("aria-valuetext") == f"{k} of {COUNTS[1]}"
    keeps_its_keys(page, page.get_by_role("slider"), ["ArrowDown", "PageDown", "Home"])
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible_in_both_themes(browser, scheme):
    accessible(browser, Corruption(**GIVEN), scheme)


@pytest.mark.browser
def test_titles_are_text_and_the_static_picture_stays(browser):
    widget = Corruption(**GIVEN, title=EVIL)
    page = open_page(browser, widget, width=390)
    harmless(page, ".ck img, .ck strong *")
    assert page.locator(".ck strong").inner_text() == EVIL
    fits(page, 390)
    still = page_of(browser, widget._repr_html_(), scripts=False, width=390)
    assert still.get_by_role("img").count() == 3
    rows = table_rows(still.locator("table"))
    sums = cover(GIVEN["blocks"], S, S).sum(dim=(1, 2)).tolist()
    assert rows == [
        (f"image {i}", str(COUNTS[i]), f"{sums[i]} of 400", corruption.percent(sums[i], 400)) for i in range(n)
    ]
    fits(still, 390)


@pytest.mark.browser
def test_live_new_data_take_the_place_of_the_old(browser):
    page = live_page(browser, "corruption", Corruption(**GIVEN).data)
    page.get_by_role("button", name="Grey").click()
    page.evaluate("(data) => view.update(data)", Corruption(**{name: x[1:2] for name, x in GIVEN.items()}).data)
    page.wait_for_function("document.querySelectorAll('.strip button').length === 1")
    assert status(page).startswith(f"Image 0: {COUNTS[1]} block")
    assert page.errors == []
