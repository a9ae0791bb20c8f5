import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from coursekit.data.crops import multi_crop
from coursekit.models.dino import pair_losses
from coursekit.viz import Crops, crops
from tests.viz.page import (
    EVIL,
    accessible,
    contrast,
    fits,
    harmless,
    keeps_its_keys,
    live_page,
    page_of,
    status,
    table_rows,
)

IMAGES = torch.rand(3, 3, 24, 36, generator=torch.Generator().manual_seed(0))
V = 5  # two global views and three local ones
NAMES = ["global 0", "global 1", "local 0", "local 1", "local 2"]


def drawn(n_local: int = 3) -> dict[str, torch.Tensor]:
    sizes, scales = (16, 8), ((0.4, 0.6), (0.05, 0.3))
    batch = multi_crop(IMAGES, torch.Generator().manual_seed(1), n_local, sizes, scales, sigma=(0.1, 1.0))
    found = {f"{kind}_{what}": batch[f"{kind}{key}"] for kind in ("global", "local") for what, key in KEYS.items()}
    return {"image": IMAGES} | found


KEYS = {"views": "", "boxes": "_boxes"}
MANY = drawn()
ONE = {name: x[0] for name, x in MANY.items()}
SHARES = (torch.cat([MANY["global_boxes"], MANY["local_boxes"]], dim=1)[..., 2:].prod(dim=2) / (24 * 36)).numpy()


def pixels_of(url: str) -> np.ndarray:
    kind, data = url.split(",")
    assert kind == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def as_bytes(image: torch.Tensor) -> np.ndarray:
    return (image * 255).round().byte().permute(1, 2, 0).numpy()


def test_pictures_and_boxes_are_those_given_in_their_order():
    widget = Crops(**MANY)
    for i in range(3):
        np.testing.assert_array_equal(pixels_of(widget.data["images"][i]), as_bytes(IMAGES[i]))
        views = [*MANY["global_views"][i], *MANY["local_views"][i]]
        boxes = torch.cat([MANY["global_boxes"][i], MANY["local_boxes"][i]])
        assert len(widget.data["views"][i]) == V
        for url, view in zip(widget.data["views"][i], views):
            np.testing.assert_array_equal(pixels_of(url), as_bytes(view))
        np.testing.assert_array_equal(widget.data["boxes"][i], boxes.double().numpy())
    np.testing.assert_allclose(widget.shares, SHARES, rtol=1e-6)


def test_one_image_arrays_and_lists_of_boxes_are_welcome():
    single = Crops(**{name: x.numpy() for name, x in ONE.items()} | {"local_boxes": ONE["local_boxes"].tolist()})
    assert {k: v for k, v in single.data.items() if k != "boxes"} == {
        k: v[:1] if k in ("images", "views") else v for k, v in Crops(**MANY).data.items() if k != "boxes"
    }
    np.testing.assert_allclose(single.boxes[0], Crops(**MANY).boxes[0])
    assert Crops(**ONE | {"image": as_bytes(IMAGES[0]).transpose(2, 0, 1)}).data["images"] == single.data["images"]


def changed(name: str, *place: int, to: float) -> dict:
    x = ONE[name].clone()
    x[place] = to
    return {name: x}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"image": IMAGES[0, 0]}, r"image has shape \(24, 36\): must be \(n, 3, height, width\)"),
        ({"image": IMAGES[0] * 2}, r"image\[0\] goes from .* floats must lie in 0\.\.1"),
        ({"image": IMAGES}, r"global_views has shape \(2, 3, 16, 16\): must be \(3, 2, 3, s, s\), as the image"),
        (
            {"global_views": ONE["local_views"]},
            r"global_views has shape \(3, 3, 8, 8\): must be \(2, 3, s, s\), as the image",
        ),
        ({"local_views": ONE["local_views"][0]}, r"local_views has shape .*: must be \(v, 3, s, s\)"),
        (
            {"local_views": ONE["local_views"].long()},
            r"local_views\[0\] is of int64: must be floats in 0\.\.1, or uint8",
        ),
        ({"local_boxes": ONE["local_boxes"][:2]}, r"local_boxes has shape \(2, 4\): must be \(3, 4\), a box for each"),
        (changed("global_boxes", 1, 0, to=-1.0), r"global_boxes\[1\]=\[-1\.0, .*must lie within an image of 24 × 36"),
        (changed("local_boxes", 2, 3, to=36.0), r"local_boxes\[2\]=.*must lie within an image of 24 × 36"),
        (changed("local_boxes", 0, 2, to=0.0), r"local_boxes\[0\]=.*must lie within"),
        (changed("local_boxes", 0, 1, to=float("nan")), r"local_boxes\[0\]=.*must lie within"),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says):
        Crops(**ONE | change)


def test_boxes_of_many_images_are_named_with_both_numbers():
    boxes = MANY["local_boxes"].clone()
    boxes[2, 1, 0] = 24
    with pytest.raises(ValueError, match=r"local_boxes\[2, 1\]="):
        Crops(**MANY | {"local_boxes": boxes})


def test_what_does_not_fit_is_refused_with_what_would_do(monkeypatch):
    monkeypatch.setattr(crops, "ROOM", 20_000)
    with pytest.raises(ValueError, match=r"3 images with 5 views each take .* fewer \(image\[:1\]\)"):
        Crops(**MANY)


def open_page(browser, widget, **kwargs):
    page = page_of(browser, widget._repr_html_(), **kwargs)
    page.locator(".views button").first.wait_for()
    return page


def view(page, j: int):
    return page.locator(".views button").nth(j)


def marked(page) -> tuple[list[int], list[int]]:
    """Which views and which boxes are marked."""
    views = page.locator(".views button").evaluate_all("all => all.flatMap((b, i) => b.matches('.chosen') ? [i] : [])")
    boxes = page.locator(".picture rect.chosen").evaluate_all("all => all.map(r => Number(r.parentNode.dataset.view))")
    assert len(boxes) == 2, "the line and what is behind it"
    return views, sorted(set(boxes))


@pytest.mark.browser
def test_each_view_marks_its_box_and_says_its_share(browser):
    page = open_page(browser, Crops(**MANY))
    for i in (0, 2):
        page.get_by_role("button", name=f"Image {i}").click()
        boxes = [*MANY["global_boxes"][i].tolist(), *MANY["local_boxes"][i].tolist()]
        for j in range(V):
            view(page, j).hover()
            assert marked(page) == ([j], [j])
            said = status(page)
            assert said.startswith(f"{NAMES[j].capitalize()} shows "), said
            assert abs(float(said.split()[3]) - 100 * SHARES[i, j]) <= 0.0501
            assert view(page, j).locator(".number").inner_text() == f"{said.split()[3]} %"
            rect = page.locator(f'[data-view="{j}"] rect').last
            shown = [float(rect.get_attribute(name)) for name in ("y", "x", "height", "width")]
            np.testing.assert_allclose(shown, boxes[j], rtol=1e-6)
            assert page.locator(".picture .tag").inner_text() == NAMES[j]
    assert page.errors == []


@pytest.mark.browser
def test_pointing_at_a_line_marks_its_view(browser):
    page = open_page(browser, Crops(**ONE))
    picture = page.locator(".picture")
    frame = picture.bounding_box()
    boxes = torch.cat([ONE["global_boxes"], ONE["local_boxes"]]).numpy()
    rng = np.random.default_rng(2)
    for x, y in rng.uniform(0.02, 0.98, (12, 2)):
        picture.hover(position={"x": x * frame["width"], "y": y * frame["height"]})
        away = [distance(x * 36, y * 24, *box) for box in boxes]
        if np.diff(sorted(away)[:2]) < 0.2:
            continue  # about as near to another one
        assert marked(page) == ([int(np.argmin(away))],) * 2
    view(page, 3).click()
    picture.hover(position={"x": 1, "y": 1})
    page.locator("h1").hover()
    assert marked(page) == ([3], [3]), "what was chosen stays when the pointer has gone"


def distance(x: float, y: float, top: float, left: float, h: float, w: float) -> float:
    """To the rectangle's line, by points all along it."""
    s = np.linspace(0, 1, 401)
    xs = np.concatenate([left + w * s, left + w * s, left + 0 * s, left + w + 0 * s])
    ys = np.concatenate([top + 0 * s, top + h + 0 * s, top + h * s, top + h * s])
    return float(np.hypot(xs - x, ys - y).min())


@pytest.mark.browser
@pytest.mark.parametrize("n_local", [0, 3])
def test_the_pairs_that_count_are_those_of_the_loss(browser, n_local):
    given = drawn(n_local) if n_local else ONE | {"local_views": np.zeros((0, 3, 8, 8)), "local_boxes": []}
    page = open_page(browser, Crops(**{name: x[0] for name, x in given.items()} if n_local else given))
    views = 2 + n_local
    pairs = pair_losses(torch.zeros(1, views, 4), torch.zeros(1, 2, 4), 1.0).numel()
    assert page.get_by_text(f"{pairs} of {2 * views} pairs count").count() == 1
    rows = page.locator("tbody tr")
    cells = [[cell.inner_text() for cell in row.locator("td").all()] for row in rows.all()]
    assert cells == [["same" if i == j else "✓" for j in range(views)] for i in range(2)]
    for j in range(views):
        view(page, j).hover()
        lit = [(i, k) for i in range(2) for k in range(views) if "chosen" in classes(rows.nth(i).locator("td").nth(k))]
        assert lit == [(i, k) for i in range(2) for k in range(views) if i != k and j in (i, k)]
    view(page, 1).hover()
    others = "4 other views" if n_local else "global 0"
    assert "As the student’s view it is compared with the teacher’s global 0, as the teacher’s " in status(page)
    assert status(page).endswith(f" with the student’s {others}.")
    if n_local:
        view(page, 2).hover()
        assert status(page).endswith("compared with what the teacher says of global 0 and global 1.")


def classes(element) -> str:
    return element.get_attribute("class") or ""


@pytest.mark.browser
def test_keyboard_alone_is_enough(browser):
    page = open_page(browser, Crops(**MANY))
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert page.locator(".picture img").get_attribute("src") == Crops(**MANY).data["images"][1]
    page.keyboard.press("Tab")
    for key, j in [("ArrowRight", 1), ("ArrowDown", 2), ("End", 4), ("ArrowRight", 4), ("ArrowLeft", 3), ("Home", 0)]:
        page.keyboard.press(key)
        assert marked(page) == ([j], [j])
        assert view(page, j).evaluate("button => button === document.activeElement")
        assert view(page, j).get_attribute("aria-pressed") == "true"
    keeps_its_keys(page, view(page, 0), ["ArrowDown", "End", "Home"])
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible_in_both_themes(browser, scheme):
    page = accessible(browser, Crops(**MANY), scheme)
    for name in ("global 0", "local 0"):  # axe cannot say what lies below a name on a picture
        page.get_by_role("button", name=name).click()
        tag = page.locator(".picture .tag")
        assert tag.inner_text() == name
        ink, ground = (tag.evaluate(f"tag => getComputedStyle(tag).{of}") for of in ("color", "backgroundColor"))
        assert contrast(ink, ground) >= 4.5


@pytest.mark.browser
def test_titles_are_text_and_the_static_picture_stays(browser):
    widget = Crops(**ONE, title=EVIL)
    page = open_page(browser, widget)
    harmless(page, ".ck img[src=x], .ck strong *")
    assert page.locator(".ck strong").inner_text() == EVIL
    assert page.locator(".strip").is_hidden(), "there is no other image to choose"
    still = page_of(browser, widget._repr_html_(), scripts=False, width=390)
    assert still.get_by_role("img").count() == 1 + V
    assert still.locator("svg rect").count() == 2 * V
    shown = [float(text.split()[-2]) for text in still.locator("figcaption").all_inner_texts()]
    np.testing.assert_allclose(shown, 100 * SHARES[0], atol=0.0501)
    rows = table_rows(still.locator("table"))
    assert [row[0] for row in rows] == ["teacher: global 0", "teacher: global 1"]
    assert [text for row in rows for text in row[1:]].count("counts") == 8
    assert rows[1][2] == "same view"
    fits(still, 390)


@pytest.mark.browser
def test_a_phone_is_wide_enough(browser):
    page = open_page(browser, Crops(**MANY), width=390)
    fits(page, 390)
    assert page.locator(".pairs").evaluate("div => div.scrollWidth <= div.clientWidth"), "and the table is whole"


@pytest.mark.browser
def test_live_new_data_take_the_place_of_the_old(browser):
    page = live_page(browser, "crops", Crops(**ONE).data)
    view(page, 3).click()
    page.mouse.move(0, 0)  # a new view that comes to lie under it would be pointed at
    page.evaluate("(data) => view.update(data)", Crops(**MANY, title="Others").data)
    assert page.locator("strong").inner_text() == "Others"
    assert page.locator(".strip button").count() == 3
    assert status(page).startswith("Global 0 shows ")
    assert page.errors == []
