"""A world of images with the answers written down: twelve kinds of object, each with its mask and all that was drawn.

As in natural categories, no single cue decides. Eight of the twelve classes share their outline with another one, and
what tells them apart are **parts**: a ladybird and a ball are both round, but one has a head, spots and a seam, the
other bright sectors. Texture and colour are **tendencies**: each class has its favourites among those that all classes
may have. Backgrounds, occluders, sizes, positions and rotations say nothing about the class.

A scene is drawn as numbers first (`draw_scenes`), then painted (`render`), at either size the same scene. Distances to
the outlines of objects, parts and textures are computed at the centre of each pixel, and turned into the share of the
pixel that is covered, which makes edges smooth.

Painting uses only operations that IEEE 754 rounds exactly (+ − × ÷ √, comparison), one after the other, so that images
come out the same whatever the processor's vector units are.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache

import torch
from torch import Tensor

from coursekit.data.batches import Batch

CLASSES = (
    *("ladybird", "ball", "fish", "rocket", "mushroom", "umbrella"),
    *("butterfly", "flower", "starfish", "fir", "doughnut", "house"),
)
TEXTURES = ("plain", "stripes", "dots", "checks", "rings", "mottled")
COLOURS = ("red", "orange", "yellow", "green", "teal", "blue", "purple", "pink")
HUES = ((-8, 8), (21, 33), (46, 57), (90, 140), (166, 186), (206, 230), (260, 284), (314, 336))  # degrees, of COLOURS
PHOTOS = {"temple": "china.jpg", "dahlia": "flower.jpg"}  # scikit-learn's names of them
BACKGROUNDS = ("gradient", "clouds", "tiles", *PHOTOS)
SPLITS = ("train", "validation", "test")
SIZES = (32, 64)
EXTENT = (0.56, 0.92)  # of objects, as a share of the image's side

# The favourites of each class, the first of them first; see `odds`.
FAVOURITES = {
    "ladybird": (("plain", "dots"), ("red", "orange", "yellow")),
    "ball": (("stripes", "plain"), ("blue", "red", "yellow")),
    "fish": (("checks", "stripes"), ("orange", "teal", "blue")),
    "rocket": (("stripes", "checks"), ("teal", "red", "purple")),
    "mushroom": (("mottled", "plain"), ("red", "orange", "pink")),
    "umbrella": (("dots", "stripes"), ("purple", "blue", "green")),
    "butterfly": (("rings", "dots"), ("blue", "purple", "orange")),
    "flower": (("plain", "rings"), ("pink", "purple", "yellow")),
    "starfish": (("dots", "mottled"), ("orange", "pink", "purple")),
    "fir": (("mottled", "checks"), ("green", "teal", "blue")),
    "doughnut": (("rings", "plain"), ("pink", "yellow", "green")),
    "house": (("checks", "mottled"), ("yellow", "green", "red")),
}

# What `draw_scenes` draws of each image, with how many numbers in 0..1.
DRAWN = {
    **{"combination": 1, "hue": 1, "saturation": 1, "value": 1, "exposure": 1, "size": 1, "place": 2, "rotation": 1},
    **{"mirrored": 1, "period": 1, "phase": 2, "direction": 1, "grain": 106},
    **{"background": 1, "window": 3, "tones": 6, "slope": 1, "pitch": 1, "clouds": 106},
    **{"occluder": 1, "side": 1, "offset": 1, "width": 1, "occluder_tone": 2},
}
# What belongs to an object wherever it is seen; the rest is the scene's.
OWN = ("labels", "texture", "colour", "rgb", "period", "phase", "direction", "grain")
PALE, GOLD, BROWN, DARK = (0.97, 0.94, 0.87), (0.98, 0.78, 0.22), (0.47, 0.31, 0.20), (0.13, 0.11, 0.15)
SHADE = "shade"  # the ink that is the body's own colour, darker
AT_ONCE = 40 * 32 * 32  # pixels of each class painted together: few enough to stay in the processor's cache
Parts = list[tuple[Tensor, tuple[float, float, float] | str]]  # distance to its outline, and ink; painted in order


@dataclass(frozen=True)
class Shapes:
    """``n`` images with all that is known about them; ``vars(shapes)`` has the tensors by name, for `Shuffled`.

    Attributes:
        images: (n, 3, S, S) uint8; ``images / 255`` is float32 in 0..1, of four times the memory.
        labels: (n,), of ``CLASSES``. Image i has class ``i % 12``.
        masks: (n, S, S) bool, True where the object is seen: more than half of the pixel.
        texture, colour, background: (n,), of ``TEXTURES``, ``COLOURS`` and ``BACKGROUNDS``.
        rgb: (n, 3), the body's colour in 0..1, before light, shade and texture.
        size: (n,), diameter of the circle around the object, as a share of the image's side.
        position: (n, 2), the middle of that circle as shares of the side: x to the right, y down.
        rotation: (n,), in degrees, clockwise.
        mirrored: (n,) bool, left and right exchanged before rotating; without it, fish and rockets head to the left.
        occluded: (n,), the share of the object's pixels that something in front of it hides.
    """

    images: Tensor
    labels: Tensor
    masks: Tensor
    texture: Tensor
    colour: Tensor
    background: Tensor
    rgb: Tensor
    size: Tensor
    position: Tensor
    rotation: Tensor
    mirrored: Tensor
    occluded: Tensor

    def __len__(self) -> int:
        return len(self.labels)


def shapes(
    n: int,
    split: str = "train",
    seed: int = 0,
    size: int = 32,
    scene: int = 0,
    extent: tuple[float, float] = EXTENT,
) -> Shapes:
    """Images of objects, the same for a seed; the first images do not depend on how many are asked for.

    Combinations of class, texture and colour for which `held_out` is True are in the split ``"test"``, and only those;
    ``"train"`` and ``"validation"`` have all others, in different scenes.

    Args:
        n: how many. Classes take turns.
        split: of ``SPLITS``.
        seed: of all draws. Splits of one seed are drawn apart from each other.
        size: of the square images in pixels, 32 or 64: the same scenes.
        scene: 0 for the first picture of each object. Every other number shows the same objects, of the same colours
            and textures, once more: elsewhere, turned, in other light, with other things behind and before them.
        extent: the smallest and the largest diameter of an object, as shares of the image's side. Where objects are
            smaller, they are also further from the middle: the circle around them may lie anywhere in the image.
    """
    if size not in SIZES:
        raise ValueError(f"size={size}: must be one of {SIZES}")
    scenes = draw_scenes(n, split, seed, scene, extent)
    images = torch.empty(n, 3, size, size, dtype=torch.uint8)
    masks, whole = torch.empty(2, n, size, size, dtype=torch.bool)
    step = AT_ONCE // size**2 * len(CLASSES)
    for start in range(0, n, step):
        some = slice(start, start + step)
        images[some], masks[some], whole[some] = render({name: x[some] for name, x in scenes.items()}, size)
    # counts of pixels, so that it is exact
    occluded = 1 - masks.float().sum(dim=(1, 2)) / whole.float().sum(dim=(1, 2))
    attributes = {field.name: scenes[field.name] for field in fields(Shapes) if field.name in scenes}
    return Shapes(images=images, masks=masks, occluded=occluded, **attributes)


# --- What is drawn by lot --------------------------------------------------------------------------------------


def held_out(label: Tensor, texture: Tensor, colour: Tensor) -> Tensor:
    """Whether a combination is kept for the test: a quarter of all, so spread that every pair is seen in training.

    Whoever goes by texture and colour together is wrong in the whole test: never was this pair seen with its class.
    """
    return (label + texture + colour) % 4 == 0


@cache
def odds(split: str) -> Tensor:
    """Odds (12, 6 · 8) of a texture and a colour, given the class, summed up along the last axis.

    Textures: 0.4 and 0.2 for the two favourites, 0.1 for each of the others. Colours: 0.45, 0.25 and 0.15 for the three
    favourites, 0.03 for each of the others. Their products count where the split has the combination.
    """
    tables = []
    for textures, colours in FAVOURITES.values():
        texture = torch.full((len(TEXTURES),), 0.1, dtype=torch.float64)
        texture[[TEXTURES.index(name) for name in textures]] = torch.tensor([0.4, 0.2], dtype=torch.float64)
        colour = torch.full((len(COLOURS),), 0.03, dtype=torch.float64)
        colour[[COLOURS.index(name) for name in colours]] = torch.tensor([0.45, 0.25, 0.15], dtype=torch.float64)
        tables.append(texture[:, None] * colour)
    grid = torch.meshgrid(*(torch.arange(len(names)) for names in (CLASSES, TEXTURES, COLOURS)), indexing="ij")
    kept = torch.where(held_out(*grid) == (split == "test"), torch.stack(tables), 0.0).flatten(1)
    return (kept / kept.sum(dim=1, keepdim=True)).cumsum(dim=1)


def draw_scenes(
    n: int, split: str = "train", seed: int = 0, scene: int = 0, extent: tuple[float, float] = EXTENT
) -> Batch:
    """The numbers of ``n`` scenes, row i for image i: what `Shapes` tells of them, and what else `render` needs."""
    if n < 1:
        raise ValueError(f"n={n}: must be at least 1")
    if split not in SPLITS:
        raise ValueError(f"split={split!r}: must be one of {SPLITS}")
    if not 0 <= seed < 10**9:
        raise ValueError(f"seed={seed}: must lie in 0..999999999")
    if not 0 <= scene < 10**6:
        raise ValueError(f"scene={scene}: must lie in 0..999999")
    if len(extent) != 2 or not 0 < extent[0] <= extent[1] <= 1:
        raise ValueError(f"extent={extent}: must be two shares of the side in 0..1, above 0, the smaller one first")
    # a generator takes 32 bits; an odd factor spreads the scenes over them
    start = (len(SPLITS) * seed + SPLITS.index(split) + 2_654_435_761 * scene) % 2**32
    generator = torch.Generator().manual_seed(start)
    drawn = torch.rand(n, sum(DRAWN.values()), generator=generator)  # row by row, hence the same at the start
    lot = dict(zip(DRAWN, drawn.split(list(DRAWN.values()), dim=1)))
    one = {name: numbers[:, 0] for name, numbers in lot.items()}

    labels = torch.arange(n) % len(CLASSES)
    cumulative = odds(split)[labels].contiguous()
    combination = torch.searchsorted(cumulative, lot["combination"].double(), right=True)[:, 0]
    texture, colour = combination // len(COLOURS), combination % len(COLOURS)
    low, high = torch.tensor(HUES, dtype=torch.float32)[colour].unbind(dim=1)
    size = between(one["size"], *extent)
    drawn = {
        "labels": labels,
        "texture": texture,
        "colour": colour,
        "background": (one["background"] * len(BACKGROUNDS)).long(),
        "rgb": to_rgb(
            low + (high - low) * one["hue"], between(one["saturation"], 0.6, 0.92), between(one["value"], 0.8, 1.0)
        ),
        "size": size,
        "position": size[:, None] / 2 + (1 - size[:, None]) * lot["place"],  # the circle stays in the image
        "rotation": between(one["rotation"], -40, 40),
        "mirrored": one["mirrored"] < 0.5,
        **{name: lot[name] for name in ("phase", "grain", "window", "tones", "clouds", "occluder_tone")},
        **{name: one[name] for name in ("exposure", "period", "direction", "slope", "pitch")},
        **{name: one[name] for name in ("occluder", "side", "offset", "width")},
    }
    if scene:
        first = draw_scenes(n, split, seed, extent=extent)
        drawn |= {name: first[name] for name in OWN}
    return drawn


def between(lot: Tensor, low: float, high: float) -> Tensor:
    return low + (high - low) * lot


def to_rgb(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    """Colours (n, 3) in 0..1 from hue in degrees, saturation and value in 0..1 (Smith 1978, the hexcone)."""
    k = torch.stack([(n + hue / 60) % 6 for n in (5, 3, 1)], dim=-1)
    return value[:, None] * (1 - saturation[:, None] * torch.minimum(k, 4 - k).clamp(0, 1))


def direction(angle: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine (n, 1, 1) of degrees, in double precision before rounding."""
    radians = angle.double()[:, None, None] * (math.pi / 180)
    return radians.cos().float(), radians.sin().float()


# --- Painting --------------------------------------------------------------------------------------------------


def render(scenes: Batch, size: int, objects: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Paint scenes: background, object, occluder.

    Args:
        scenes: from `draw_scenes`; b of them.
        size: of the images in pixels, S.
        objects: False leaves them out and paints the rest.

    Returns:
        Images (b, 3, S, S) uint8, and masks (b, S, S) bool of the objects: what is seen of them, and whole.
    """
    pixel = (torch.arange(size) + 0.5) / size
    x, y = pixel[None, None, :], pixel[None, :, None]
    radius = (scenes["size"] / 2)[:, None, None]
    # from the middle of the object, in its radii, in the image's directions
    dx, dy = ((axis - middle[:, None, None]) / radius for axis, middle in zip((x, y), scenes["position"].unbind(dim=1)))
    blur = 1 / (size * radius)  # width of a pixel in radii

    image = background(scenes, x, y)
    whole = torch.zeros(len(image), size, size)
    if objects:
        whole = paint_objects(image, scenes, dx, dy, blur)
    hidden = torch.zeros_like(whole)
    for rows, distance, shine in occluders(scenes, dx, dy):
        tone = between(scenes["occluder_tone"][rows], 0.25, 0.8)
        warm = torch.stack([tone[:, 0], 0.5 * (tone[:, 0] + tone[:, 1]), tone[:, 1]], dim=1)
        hidden[rows] = covered(distance, blur[rows])
        image[rows] = over(image[rows], warm[:, :, None, None] * shine[:, None], hidden[rows])
    seen = whole * (1 - hidden)
    return image.clamp_(0, 1).mul_(255).round_().to(torch.uint8), seen > 0.5, whole > 0.5


def covered(distance: Tensor, blur: Tensor) -> Tensor:
    """Share of a pixel inside of an outline, from the distance of its middle (negative inside) and its width."""
    return (0.5 - distance / blur).clamp_(0, 1)


def over(below: Tensor, above: Tensor, share: Tensor) -> Tensor:
    """``above`` painted on ``below``, both (b, 3, S, S), where ``share`` (b, S, S) covers it."""
    return ((above - below) * share[:, None]).add_(below)


def paint_objects(image: Tensor, scenes: Batch, dx: Tensor, dy: Tensor, blur: Tensor) -> Tensor:
    """Paint the objects on ``image`` (b, 3, S, S), in place; returns how much of each pixel they cover (b, S, S)."""
    cosine, sine = direction(scenes["rotation"])
    mirror = torch.where(scenes["mirrored"], -1.0, 1.0)[:, None, None]
    u, v = (cosine * mirror) * dx + (sine * mirror) * dy, cosine * dy - sine * dx  # turned back
    field = textures(scenes, u, v, blur)
    light = between(scenes["exposure"], 0.88, 1.04)[:, None, None] - 0.14 * (dx + dy)  # from above on the left
    share = torch.empty_like(u)
    for name, rows in zip(CLASSES, groups(scenes["labels"], len(CLASSES))):
        a, b, width, dark, lit, behind = of_rows(rows, u, v, blur, field, light, image)
        outline, parts = DRAW[name](a, b)
        base = scenes["rgb"][rows][:, :, None, None]
        painted, shade = base * (1 - 0.42 * dark[:, None]), 0.55 * base
        for distance, ink in parts:
            paint = shade if ink == SHADE else torch.tensor(ink)[None, :, None, None]
            painted = over(painted, paint, covered(distance, width))
        rim = 0.55 * covered(-0.07 - outline, width)
        seen = covered(outline, width)
        share[rows], image[rows] = seen, over(behind, (painted * (lit * (1 - rim))[:, None]).clamp_(max=1), seen)
    return share


def groups(kinds: Tensor, number: int) -> list[Tensor]:
    """The rows of each kind."""
    return [(kinds == kind).nonzero()[:, 0] for kind in range(number)]


def of_rows(rows: Tensor, *tensors: Tensor) -> list[Tensor]:
    """``tensor[rows]`` of each, in less time."""
    return [tensor.index_select(0, rows) for tensor in tensors]


def band(x: Tensor, period: Tensor | float) -> Tensor:
    """Distance to bands along an axis, as broad as the gaps between them."""
    turns = x / period
    return ((turns - turns.floor() - 0.5).abs() - 0.25) * period


def checks(u: Tensor, v: Tensor, period: Tensor, blur: Tensor) -> Tensor:
    one, other = covered(band(u, period), blur), covered(band(v, period), blur)
    return one + other - 2 * one * other


def textures(scenes: Batch, u: Tensor, v: Tensor, blur: Tensor) -> Tensor:
    """The pattern of each body (b, S, S), 0 where it has its colour, 1 where it is darkest."""
    field = torch.zeros_like(u)
    cosine, sine = direction(scenes["direction"] * 180)
    period = between(scenes["period"], 0.5, 0.7)[:, None, None]
    phase = (scenes["phase"] - 0.5)[:, :, None, None].unbind(dim=1)
    for name, rows in zip(TEXTURES, groups(scenes["texture"], len(TEXTURES))):
        if name == "plain":
            continue
        if name == "mottled":
            field[rows] = noise(scenes["grain"][rows], u.shape[-1])
            continue
        c, s, x, y, p, width = of_rows(rows, cosine, sine, u, v, period, blur)
        a, b = c * x + s * y + phase[0][rows], c * y - s * x + phase[1][rows]  # along and across the pattern
        if name == "stripes":
            field[rows] = covered(band(a, p), width)
        elif name == "dots":
            near, far = ((x / p - (x / p).floor() - 0.5) * p for x in (a, b))
            field[rows] = covered((near * near + far * far).sqrt() - 0.3 * p, width)
        elif name == "checks":
            field[rows] = checks(a, b, 1.3 * p, width)
        elif name == "rings":
            field[rows] = covered(band((a * a + b * b).sqrt(), p), width)
    return field


def noise(lattice: Tensor, size: int) -> Tensor:
    """Cloudy noise (b, S, S) in 0..1: values on lattices of 5 × 5 and 9 × 9 points (b, 106), smoothly in between."""
    found = 0.0
    for cells, weight, values in ((4, 0.65, lattice[:, :25]), (8, 0.35, lattice[:, 25:])):
        place = (torch.arange(size) + 0.5) * (cells / size)
        cell = place.long()
        t = place - cell
        t = t * t * (3 - 2 * t)
        grid = values.reshape(-1, cells + 1, cells + 1)
        grid = grid[:, cell] * (1 - t)[:, None] + grid[:, cell + 1] * t[:, None]
        found = found + weight * (grid[:, :, cell] * (1 - t) + grid[:, :, cell + 1] * t)
    return ((found - 0.5) * 1.8 + 0.5).clamp(0, 1)


def background(scenes: Batch, x: Tensor, y: Tensor) -> Tensor:
    """What is behind the object (b, 3, S, S): two quiet colours, or a window of a photograph."""
    size = x.shape[-1]
    image = torch.empty(len(scenes["labels"]), 3, size, size)
    tones = scenes["tones"]
    first, second = (
        to_rgb(360 * hue, 0.4 * saturation, between(value, 0.3, 0.95))[:, :, None, None]
        for hue, saturation, value in (tones[:, :3].unbind(dim=1), tones[:, 3:].unbind(dim=1))
    )
    cosine, sine = direction(scenes["slope"] * 360)
    for name, rows in zip(BACKGROUNDS, groups(scenes["background"], len(BACKGROUNDS))):
        if name in PHOTOS:
            image[rows] = photo_window(name, scenes["window"][rows], size)
            continue
        c, s = cosine[rows], sine[rows]
        along, across = c * (x - 0.5) + s * (y - 0.5), c * (y - 0.5) - s * (x - 0.5)
        if name == "gradient":
            share = (0.5 + 0.7 * along).clamp(0, 1)
        elif name == "clouds":
            share = noise(scenes["clouds"][rows], size)
        else:
            period = between(scenes["pitch"][rows], 0.25, 0.5)[:, None, None]
            share = 0.5 * checks(along, across, period, torch.tensor(1 / size))
        image[rows] = over(first[rows], second[rows], share)
    return image


@cache
def photo_sums(name: str) -> Tensor:
    """Of one of scikit-learn's photographs, sums (428, 641, 3) of all pixels above and to the left."""
    from sklearn.datasets import load_sample_image  # takes a second, and not every data set needs it

    pixels = torch.tensor(load_sample_image(PHOTOS[name]), dtype=torch.int32)
    sums = torch.zeros(*(side + 1 for side in pixels.shape[:2]), 3, dtype=torch.int32)
    sums[1:, 1:] = pixels.cumsum(0, dtype=torch.int32).cumsum(1, dtype=torch.int32)
    return sums


def photo_window(name: str, lot: Tensor, size: int) -> Tensor:
    """Windows (b, 3, S, S) of 64, 128, 192 or 256 pixels a side, anywhere; each pixel is the mean of a square."""
    sums = photo_sums(name)
    height, width = sums.shape[0] - 1, sums.shape[1] - 1
    zoom = 1 + (4 * lot[:, 0]).long()
    top = (lot[:, 1] * (height - 64 * zoom + 1)).long()
    left = (lot[:, 2] * (width - 64 * zoom + 1)).long()
    step = zoom * (64 // size)
    corners = torch.arange(size + 1)
    rows, columns = top[:, None] + step[:, None] * corners, left[:, None] + step[:, None] * corners
    places = rows[:, :, None] * (width + 1) + columns[:, None, :]
    at = sums.flatten(0, 1).index_select(0, places.flatten()).unflatten(0, places.shape)  # (b, S + 1, S + 1, 3)
    square = at.diff(dim=1).diff(dim=2)
    return square.permute(0, 3, 1, 2) / (255 * step * step)[:, None, None, None]


def occluders(scenes: Batch, dx: Tensor, dy: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """What is in front of every third object: its rows, distance to its outline, and light on it, (b, S, S) each.

    Half of them posts across the image, half boulders over one side of the object.
    """
    cosine, sine = direction(scenes["side"] * 360)
    found = []
    for rows, post in ((scenes["occluder"] < 1 / 6, True), ((scenes["occluder"] >= 5 / 6), False)):
        rows = rows.nonzero()[:, 0]
        c, s, x, y = cosine[rows], sine[rows], dx[rows], dy[rows]
        along, across = c * x + s * y, c * y - s * x
        offset, width = (scenes[name][rows][:, None, None] for name in ("offset", "width"))
        if post:
            half = between(width, 0.11, 0.2)
            away = along - between(offset, -0.6, 0.6)
            distance, shine = (
                away.abs() - half,
                1 - 0.35 * (away / half).clamp(-1, 1) * torch.where(c + s > 0, 1.0, -1.0),
            )
        else:
            radius = between(width, 0.5, 0.75)
            away = along - radius - between(offset, 0.25, 0.65)
            distance = (away * away + across * across).sqrt() - radius
            shine = 1 - 0.3 * ((x + y) - (c + s) * (along - away)) / radius
        found.append((rows, distance, shine))
    return found


# --- The twelve kinds of object --------------------------------------------------------------------------------
# In radii of the circle around the object, u to the right, v down. Distances are negative inside.


def disc(u: Tensor, v: Tensor, x: float, y: float, radius: float) -> Tensor:
    a, b = u - x, v - y
    return (a * a + b * b).sqrt() - radius


def oval(u: Tensor, v: Tensor, x: float, y: float, across: float, down: float) -> Tensor:
    """Nearly the distance, near to the outline."""
    a, b = (u - x) / across, (v - y) / down
    r = (a * a + b * b).sqrt()
    a, b = a / across, b / down
    return (r - 1) * r / (a * a + b * b).sqrt().clamp(min=0.5)


def box(u: Tensor, v: Tensor, left: float, right: float, top: float, bottom: float) -> Tensor:
    a, b = (u - (left + right) / 2).abs() - (right - left) / 2, (v - (top + bottom) / 2).abs() - (bottom - top) / 2
    return torch.maximum(a, b)


def line(u: Tensor, v: Tensor, start: tuple[float, float], end: tuple[float, float], radius: float) -> Tensor:
    """A line with round ends, as broad as twice the radius."""
    (x, y), (along, down) = start, (end[0] - start[0], end[1] - start[1])
    a, b = u - x, v - y
    t = ((a * along + b * down) / (along * along + down * down)).clamp(0, 1)
    a, b = a - t * along, b - t * down
    return (a * a + b * b).sqrt() - radius


def roof(u: Tensor, v: Tensor, top: float, bottom: float, half: float) -> Tensor:
    """A triangle, its point up in the middle."""
    height = bottom - top
    length = math.sqrt(half * half + height * height)
    sides = (u.abs() * height - (v - top) * half) / length
    return torch.maximum(sides, v - bottom)


def fold(u: Tensor, v: Tensor, arms: int) -> tuple[Tensor, Tensor]:
    """Turn and mirror all arms of a star of 3 or 5 arms onto the one that points up: its side, and up along it."""
    p, q = u.abs(), -v
    for degrees in {3: (60,), 5: (108, 36)}[arms]:  # mirrors between neighbouring arms
        c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        beyond = (p * c - q * s).clamp(min=0)
        p, q = p - 2 * c * beyond, q + 2 * s * beyond
    return p.abs(), q


def any_of(*distances: Tensor) -> Tensor:
    found = distances[0]
    for distance in distances[1:]:
        found = torch.minimum(found, distance)
    return found


def ladybird(u: Tensor, v: Tensor) -> tuple[Tensor, Parts]:
    side = u.abs()
    outline = disc(u, v, 0, 0, 0.98)
    spots = any_of(disc(side, v, 0.45, -0.12, 0.19), disc(side, v, 0.42, 0.45, 0.19))
    seam = torch.maximum(side - 0.05, -v)
    head = torch.maximum(v + 0.5, outline)
    return outline, [(seam, DARK), (spots, DARK), (head, DARK), (disc(side, v, 0.3, -0.68, 0.14), PALE)]


def ball(u: Tensor, v: Tensor) -> tuple[Tensor, Parts]:
    r = (u * u + v * v).clamp(min=0.01)
    sectors = u * (u * u - 3 * v * v) / (3 * r)  # the cosine of three times the angle
    return disc(u, v, 0, 0, 0.98), [(sectors, PALE), (disc(u, v, 0, 0, 0.22), SHADE)]


def dart(u: Tensor, v: Tensor) -> Tensor:
    """Outline of fish and rocket, pointing left: an oval and a tail."""
    side = v.abs()
    tail = torch.maximum((side - 0.62 - 0.75 * (u - 0.95)) * 0.8, u - 0.95)
    return any_of(oval(u, v, -0.2, 0, 0.76, 0.5), torch.maximum(tail, -u))


def fish(u: Tensor, v: Tensor) -> tuple[Tensor, Parts]:
    gill = torch.maximum(disc(u, v, -0.72, 0, 0.42).abs() - 0.045, -0.5 - u)
    fin = line(u, v, (-0.05, 0.06), (0.2, 0.16), 0.08)
    tail = torch.maximum(band(u - 0.5, 0.3), 0.5 - u)
    eye = disc(u, v, -0.62, -0.12, 0.14)
    return dart(u, v), [(gill, SHADE), (fin, SHADE), (tail, PALE), (eye, PALE), (eye + 0.07, DARK)]


def rocket(u: Tensor, v: Tensor) -> tuple[Tensor, Parts]:
    window = disc(u, v, -0.2, 0, 0.26)
    flame = 0.72 - u + 0.35 * v.abs()
    nose = u + 0.6
    belt = (u - 0.28).abs() - 0.06
    return dart(u, v), [(nose, PALE), (belt, PALE), (flame, GOLD), (window, PALE), (window + 0.11, DARK)]


def parasol(u: Tensor, v: Tensor) -> Tensor:
    """Outline of mushroom and umbrella: a dome on a stem."""
    return any_of(torch.maximum(disc(u, v, 0, 0.05, 0.96), v - 0.15), box(u, v, -0.2, 0.2, 0, 0.95))


def mushroom(u: Tensor, v: Tensor) -> tuple[Tensor, Parts]:
    spots = any_of(disc(u, v, -0.5, -0.16, 0.18), disc(u, v, 0.05, -0.5, 0.2), disc(u, v, 0.52, -0.2, 0.16))
    gills = torch.maximum((v - 0.15).abs() - 0.1, u.abs() - 0.9)
    return parasol(u, v), [(spots, PALE), (0.2 - v, PALE), (gills, BROWN)]


def umbrella(u: Tensor, v: Tensor) -> tuple[Tensor, Parts]:
    wide, narrow = oval(u, v, 0, 0.15, 0.62, 1.05), oval(u, v, 0, 0.15, 0.24, 1.05)
    panels = torch.maximum(wide, -narrow)
    return parasol(u, v), [(panels, PALE), (0.16 - v, DARK), (0.78 - v, GOLD)]


def quatrefoil(u: Tensor, v: Tensor) -> Tensor:
    """Outline of butterfly and flower: four lobes around a middle."""
    return any_of(disc(u.abs(), v.abs(), 0.43, 0.4, 0.42), disc(u, v, 0, 0, 0.4))


def butterfly(u: Tensor, v: Tensor) -> tuple[Tensor, Parts]:
    outline, side = quatrefoil(u, v), u.abs()
    eye = disc(side, v, 0.47, -0.42, 0.21)
    lower = disc(side, v, 0.42, 0.42, 0.16)
    body = line(u, v, (0, -0.32), (0, 0.34), 0.09)
    return outline, [(-0.08 - outline, DARK), (eye, PALE), (eye + 0.1, DARK), (lower, GOLD), (body, DARK)]


def flower(u: Tensor, v: Tensor) -> tuple[Tensor, Parts]:
    heart = disc(u, v, 0, 0, 0.3)
    veins = line(u.abs(), v.abs(), (0.2, 0.19), (0.58, 0.54), 0.05)
    return quatrefoil(u, v), [(veins, PALE), (heart, GOLD), (heart + 0.17, BROWN)]


def starfish(u: Tensor, v: Tensor) -> tuple[Tensor, Parts]:
    p, q = fold(u, v, 5)
    x, y = 0.42 * math.sin(math.pi / 5), 0.42 * math.cos(math.pi / 5)  # where two arms meet
    tip = 0.98 - y
    outline = (p * tip + (q - 0.98) * x) / math.sqrt(x * x + tip * tip)
    row = any_of(*(disc(p, q, 0, place, radius) for place, radius in ((0.28, 0.1), (0.5, 0.085), (0.7, 0.06))))
    return outline - 0.03, [(row, PALE), (disc(u, v, 0, 0, 0.14), SHADE)]


def fir(u: Tensor, v: Tensor) -> tuple[Tensor, Parts]:
    upper, middle, lower = roof(u, v, -0.95, -0.3, 0.48), roof(u, v, -0.6, 0.2, 0.64), roof(u, v, -0.25, 0.68, 0.78)
    trunk = box(u, v, -0.15, 0.15, 0.6, 0.97)
    edges = any_of(torch.maximum(upper, -0.12 - (v + 0.3)), torch.maximum(middle, -0.12 - (v - 0.2)))
    baubles = any_of(disc(u, v, -0.2, 0.0, 0.1), disc(u, v, 0.25, 0.42, 0.11), disc(u, v, 0.08, -0.42, 0.09))
    return any_of(upper, middle, lower, trunk), [(edges, SHADE), (0.68 - v, BROWN), (baubles, GOLD)]


def doughnut(u: Tensor, v: Tensor) -> tuple[Tensor, Parts]:
    r = (u * u + v * v).sqrt()
    p, q = fold(u, v, 3)
    sprinkles = any_of(line(p, q, (0.06, 0.68), (0.2, 0.78), 0.055), line(p, q, (0.36, 0.42), (0.38, 0.62), 0.055))
    return (r - 0.62).abs() - 0.36, [(0.86 - r, BROWN), (sprinkles, PALE)]


def house(u: Tensor, v: Tensor) -> tuple[Tensor, Parts]:
    gable = roof(u, v, -0.97, -0.22, 0.92)
    walls = box(u, v, -0.7, 0.7, -0.3, 0.7)
    door, window = box(u, v, 0.14, 0.48, 0.16, 0.8), box(u, v, -0.48, -0.08, 0.02, 0.42)
    bars = any_of((u + 0.28).abs(), (v - 0.22).abs()) - 0.03
    parts = [(gable, BROWN), (door, DARK), (window, GOLD), (torch.maximum(window, bars), BROWN)]
    return any_of(gable, walls), parts


DRAW: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Parts]]] = {
    draw.__name__: draw
    for draw in (ladybird, ball, fish, rocket, mushroom, umbrella, butterfly, flower, starfish, fir, doughnut, house)
}
