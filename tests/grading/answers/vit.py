"""Answers to exercise 07, wrong ones with the points they deserve and the words they must be told, and right ones.

A wrong answer is ``(points, words, source)``. Each is a mistake that a student could make.
"""


def cutting(
    out="0, 2, 4, 1, 3, 5",
    view="B, rows, columns, -1, size, size",
    back="0, 3, 1, 4, 2, 5",
    before="",
):
    """Both ways by views, and something else in them."""
    return f"""
def patchify(images, size):
    B, C, height, width = images.shape
    x = images.reshape(B, C, height // size, size, width // size, size)
    return x.permute({out}).reshape(B, height * width // size**2, C * size**2)

def unpatchify(patches, size, rows, columns):
    {before}
    B = patches.shape[0]
    x = patches.reshape({view}).permute({back})
    return x.reshape(B, -1, rows * size, columns * size)
"""


def layers(
    matrix="kernel.reshape(len(kernel), -1).T",
    kernel="matrix.T.reshape(matrix.shape[1], channels, size, size)",
    count="channels * size**2 * d_model + d_model + d_model + (N + 1) * d_model",
):
    """One line each, and something else in them."""
    return f"""
def as_matrix(kernel):
    return {matrix}

def as_kernel(matrix, channels, size):
    return {kernel}

def n_parameters(channels, height, width, size, d_model):
    N = height * width // size**2
    return {count}
"""


def embedding(
    join="torch.cat([front, x], dim=1)",
    positions="z + w['positions']",
    cut="course_patchify(images, size)",
    read="y[:, 0]",
    norm="F.layer_norm(z, z.shape[-1:], *w['norm'])",
):
    """Both ends of the model, and something else in them."""
    return f"""
def embed(images, w, size):
    x = F.linear({cut}, *w["patch"])
    B, N, D = x.shape
    front = w["class_token"].view(1, 1, D).repeat(B, 1, 1)
    z = {join}
    return {positions}

def read_out(z, w):
    y = {norm}
    return F.linear({read}, *w["head"])
"""


def rolling(
    heads="weights.mean(dim=1)",
    own="step + torch.eye(T)",
    rows="step / step.sum(dim=-1, keepdim=True)",
    product="step @ rolled",
    after="rolled",
    row="rolled[:, 0, 1:]",
    grid="row.reshape(-1, rows, columns)",
):
    """One line for each step, and something else in it."""
    return f"""
def rollout(maps):
    L, B, H, T, _ = maps.shape
    rolled = None
    for weights in maps:
        step = {heads}
        step = {own}
        step = {rows}
        rolled = step if rolled is None else {product}
    return {after}

def class_map(rolled, rows, columns):
    row = {row}
    row = row / row.sum(dim=-1, keepdim=True)
    return {grid}
"""


def resizing(
    front="positions[:1]",
    cells="positions[1:]",
    grid="cells.reshape(old_rows, old_columns, D).permute(2, 0, 1)[None]",
    size="(rows, columns)",
    options="mode='bicubic', align_corners=False",
    flat="x[0].permute(1, 2, 0).reshape(rows * columns, D)",
    joined="front, cells",
):
    """The steps by name, and something else in them."""
    return f"""
def resize_positions(positions, old_rows, old_columns, rows, columns):
    D = positions.shape[1]
    front, cells = {front}, {cells}
    x = {grid}
    x = F.interpolate(x, size={size}, {options})
    cells = {flat}
    return torch.cat([{joined}])
"""


def reading(
    updates=3,
    cut="course_patchify(images, 4)",
    join="front, x",
    positions="z + self.positions",
    read="self.norm(z)[:, 0]",
    batch="varied(images[rows])",
    target="labels[rows]",
    rate="4e-3 * min((step + 1) / warmup, (updates - step) / (updates - warmup))",
    step="optimizer.step()",
    optimizer="AdamW",
):
    """Model and loop, with something else in them."""
    return f"""
class DigitViT(Layers):
    def forward(self, images):
        x = self.patch_embedding({cut})
        front = self.class_token.repeat(len(x), 1, 1)
        z = torch.cat([{join}], dim=1)
        z = {positions}
        for block in self.blocks:
            z = block(z)
        return self.head({read})

def train(model, images, labels):
    updates = {updates}
    warmup = 1 + updates // 10
    optimizer = torch.optim.{optimizer}(model.parameters(), lr=1.0)
    for step in range(updates):
        optimizer.param_groups[0]["lr"] = {rate}
        rows = torch.randperm(len(images))[:64]
        loss = F.cross_entropy(model({batch}), {target})
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        {step}
    return model
"""


MUTANTS = {
    "patches": [
        (0, "the patches go column by column", cutting(
            "0, 4, 2, 1, 3, 5", "B, columns, rows, -1, size, size", "0, 3, 2, 4, 1, 5"
        )),
        (4, "the pixels of a patch go column by column", cutting("0, 2, 4, 1, 5, 3", back="0, 3, 1, 5, 2, 4")),
        (4, "the channels come last", cutting(
            "0, 2, 4, 3, 5, 1", "B, rows, columns, size, size, -1", "0, 5, 1, 3, 2, 4"
        )),
        (0, "this is a view alone", """
def patchify(images, size):
    B, C, height, width = images.shape
    return images.view(B, -1, C * size * size)

def unpatchify(patches, size, rows, columns):
    return patches.view(len(patches), -1, rows * size, columns * size)
"""),
        (11, "the channels come before the patches", cutting("0, 1, 2, 4, 3, 5")),
        (9, "the axes are joined as (rows, columns, P, P)", cutting(back="0, 3, 1, 2, 4, 5")),
        (9, "rows and columns of the grid have changed places", cutting(before="rows, columns = columns, rows")),
        (9, "the grid is taken to be a square", cutting(before="rows = columns = int(patches.shape[1] ** 0.5)")),
    ],
    "kernels": [
        (4, "a view alone mixes the D outputs", layers(
            "kernel.reshape(-1, len(kernel))", "matrix.reshape(-1, channels, size, size)"
        )),
        (8, "the matrix is the other way round", layers("kernel.flatten(1)")),
        (4, "the channels come last", layers(
            "kernel.permute(2, 3, 1, 0).flatten(0, 2)", "matrix.view(size, size, channels, -1).permute(3, 2, 0, 1)"
        )),
        (4, "the pixels of a patch go column by column", layers(
            "kernel.mT.flatten(1).T", "matrix.T.reshape(-1, channels, size, size).mT"
        )),
        (8, "one vector of D is missing", layers(count="(channels * size**2 + 1 + 1 + N) * d_model")),
        (8, "two vectors of D are missing", layers(count="(channels * size**2 + 1 + N) * d_model")),
        (8, "the positions are not counted", layers(count="(channels * size**2 + 1 + 1) * d_model")),
        (8, "the layer is counted once for each patch", layers(
            count="N * (channels * size**2 + 1) * d_model + (N + 2) * d_model"
        )),
    ],
    "tokens": [
        (6, "the class token stands behind the patches", embedding("torch.cat([x, front], dim=1)")),
        (10, "the positions are not added", embedding(positions="z")),
        (10, "the class token gets no position", embedding(
            "x + w['positions'][1:]", positions="torch.cat([front, z], dim=1)"
        )),
        (10, "the class token gets the last position", embedding(positions="z + w['positions'].roll(1, 0)")),
        (6, "the patches go column by column", embedding(
            cut="F.unfold(images.mT, size, stride=size).mT.unflatten(2, (-1, size, size)).mT.flatten(2)"
        )),
        (8, "the last token is read", embedding(read="y[:, -1]")),
        (8, "the mean of the patches is read", embedding(read="y[:, 1:].mean(dim=1)")),
        (8, "the layer norm before the head is missing", embedding(norm="z")),
    ],
    "rollouts": [
        (5, "the identity is missing", rolling(own="step")),
        (5, "the rows are not divided by their sums", rolling(rows="step")),
        (5, "the columns are divided by their sums", rolling(rows="step / step.sum(dim=1, keepdim=True)")),
        (10, "the heads are averaged after the product", rolling("weights", after="rolled.mean(dim=1)")),
        (5, "the heads are added up", rolling("weights.sum(dim=1)")),
        (10, "the product has the wrong order", rolling(product="rolled @ step")),
        (11, "this is the column of the class token", rolling(row="rolled[:, 1:, 0]")),
        (11, "the map is filled column by column", rolling(grid="row.reshape(-1, columns, rows).mT")),
    ],
    "resize_positions": [
        (0, "the class token's position is interpolated too", """
def resize_positions(positions, old_rows, old_columns, rows, columns):
    x = positions.T[None, :, None]
    return F.interpolate(x, size=(1, 1 + rows * columns), mode="bicubic", align_corners=False)[0, :, 0].T
"""),
        (0, "the last vector is taken for the class token's", resizing(
            "positions[-1:]", "positions[:-1]", joined="cells, front"
        )),
        (0, "the class token's position is lost", resizing(joined="cells")),
        (10, "the new grid has its rows and columns exchanged", resizing(size="(columns, rows)")),
        (3, "the old grid is read column by column", resizing(
            grid="cells.reshape(old_columns, old_rows, D).permute(2, 1, 0)[None]"
        )),
        (0, "the axis D comes first by a view", resizing(grid="cells.reshape(1, D, old_rows, old_columns)")),
        (3, "the corners are aligned", resizing(options="mode='bicubic', align_corners=True")),
        (3, "this is linear", resizing(options="mode='bilinear', align_corners=False")),
    ],
    "digit_vit": [
        (5, "it has hardly learned anything", reading(step="")),
        (5, "it reads the digits as they are in the file", reading(300, batch="scaled(images[rows])")),
        (0, "the positions are not added", reading(positions="z")),
        (0, "the class token stands behind the patches", reading(join="x, front", read="self.norm(z)[:, -1]")),
        (0, "the mean of all tokens is read", reading(read="self.norm(z).mean(dim=1)")),
        (0, "the pixels of a patch go column by column", reading(
            cut="course_patchify(images.mT, 4)[:, [0, 2, 1, 3]]"
        )),
        (0, "the training diverged", reading(rate="1e38", optimizer="SGD")),
(5, "train longer, or with another rate", reading(60)),
    ],
}  # fmt: skip

RIGHT = {
    "patches": [
        cutting(),
        """
def patchify(images, size):
    return F.unfold(images, size, stride=size).mT

def unpatchify(patches, size, rows, columns):
    return F.fold(patches.mT, (rows * size, columns * size), size, stride=size)
""",
        """
def patchify(images, size):
    B, C, height, width = images.shape
    found = []
    for top in range(0, height, size):
        for left in range(0, width, size):
            found.append(images[:, :, top : top + size, left : left + size].flatten(1))
    return torch.stack(found, dim=1)

def unpatchify(patches, size, rows, columns):
    B, N, numbers = patches.shape
    images = torch.zeros(B, numbers // size**2, rows * size, columns * size)
    for i in range(N):
        top, left = i // columns * size, i % columns * size
        images[:, :, top : top + size, left : left + size] = patches[:, i].view(B, -1, size, size)
    return images
""",
    ],
    "kernels": [
        layers(),
        """
def as_matrix(kernel):
    inputs = kernel[0].numel()
    units = torch.eye(inputs).view(inputs, *kernel.shape[1:])
    return F.conv2d(units, kernel)[:, :, 0, 0]  # what the convolution makes of each unit vector

def as_kernel(matrix, channels, size):
    return torch.stack([column.view(channels, size, size) for column in matrix.unbind(dim=1)])

def n_parameters(channels, height, width, size, d_model):
    layer = nn.Conv2d(channels, d_model, size, stride=size)
    tokens = 1 + layer(torch.zeros(1, channels, height, width)).flatten(2).shape[2]
    return sum(p.numel() for p in layer.parameters()) + d_model + torch.zeros(tokens, d_model).numel()
""",
    ],
    "tokens": [
        embedding(),
        """
def embed(images, w, size):
    weight, bias = w["patch"]
    kernel = weight.unflatten(1, (images.shape[1], size, size))
    x = F.conv2d(images, kernel, bias, stride=size).flatten(2).transpose(1, 2)
    z = w["positions"].repeat(len(images), 1, 1)
    z[:, 0] += w["class_token"]
    z[:, 1:] += x
    return z

def read_out(z, w):
    y = z.select(1, 0)
    y = (y - y.mean(-1, keepdim=True)) / (y.var(-1, keepdim=True, correction=0) + 1e-6).sqrt()
    y = y * w["norm"][0] + w["norm"][1]
    return y @ w["head"][0].T + w["head"][1]
""",
    ],
    "rollouts": [
        rolling(),
        """
def rollout(maps):  # rows of attention sum to 1, so those with the identity sum to 2
    steps = 0.5 * maps.mean(dim=2) + 0.5 * torch.eye(maps.shape[-1])
    rolled = steps[-1]
    for step in steps[:-1].flip(0):  # from the last layer down
        rolled = rolled @ step
    return rolled

def class_map(rolled, rows, columns):
    picture = rolled[:, :1, 1:].reshape(len(rolled), rows, columns)
    return picture / picture.sum(dim=(1, 2), keepdim=True)
""",
        """
from coursekit.evaluate.vision import attention_rollout

def rollout(maps):  # the course's own
    return attention_rollout(maps)

def class_map(rolled, rows, columns):
    return torch.stack([torch.stack([(one[0] / (1 - one[0, 0]))[1 + r * columns : 1 + (r + 1) * columns]
                                     for r in range(rows)]) for one in rolled])
""",
    ],
    "resize_positions": [
        resizing(),
        """
def resize_positions(positions, old_rows, old_columns, rows, columns):  # first the rows, then the columns
    options = {"mode": "bicubic", "align_corners": False}
    x = positions[1:].T.reshape(1, -1, old_rows, old_columns)
    x = F.interpolate(x, size=(rows, old_columns), **options)
    x = F.interpolate(x, size=(rows, columns), **options)
    result = torch.empty(1 + rows * columns, positions.shape[1])
    result[0], result[1:] = positions[0], x.view(-1, rows * columns).T
    return result
""",
        """
from coursekit.nn.positions import resize_grid

def resize_positions(positions, old_rows, old_columns, rows, columns):  # the course's own
    grid = positions[1:].view(old_rows, old_columns, -1)
    return torch.cat([positions[:1], resize_grid(grid, (rows, columns)).flatten(0, 1)])
""",
    ],
    "digit_vit": [reading(1000), """
class DigitViT(Layers):
    def forward(self, images):
        x = F.conv2d(images, self.patch_embedding.weight.view(64, 1, 4, 4), self.patch_embedding.bias, stride=4)
        x = F.pad(x.flatten(2).mT, (0, 0, 1, 0)) + self.positions
        x[:, 0] = x[:, 0] + self.class_token
        return self.head(self.norm(nn.Sequential(*self.blocks)(x))[:, 0])

def train(model, images, labels):
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=800, pct_start=0.1)
    for _ in range(800):
        rows = torch.randint(0, len(images), (96,))
        loss = nn.CrossEntropyLoss()(model(varied(images[rows])), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model
"""],
}  # fmt: skip
