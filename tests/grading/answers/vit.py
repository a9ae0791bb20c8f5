"""Answers to exercise 07, right and wrong ones: see __init__."""

from tests.grading.answers import FIRST, load

RIGHT, MUTANTS = load("07_vit", {
"patches": (FIRST, ["""def patchify(images, size):
    B, C, height, width = images.shape
    x = images.reshape(B, C, height // size, size, width // size, size)
    return x.permute(0, 2, 4, 1, 3, 5).reshape(B, height * width // size**2, C * size**2)
def unpatchify(patches, size, rows, columns):
    B = patches.shape[0]
    x = patches.reshape(B, rows, columns, -1, size, size).permute(0, 3, 1, 4, 2, 5)
    return x.reshape(B, -1, rows * size, columns * size)
""", """def patchify(images, size):
    return F.unfold(images, size, stride=size).mT
def unpatchify(patches, size, rows, columns):
    return F.fold(patches.mT, (rows * size, columns * size), size, stride=size)
""", """def patchify(images, size):
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
"""], [
    (0, "the patches go column by column", "0, 2, 4, 1, 3, 5", "0, 4, 2, 1, 3, 5",
     "B, rows, columns", "B, columns, rows", "0, 3, 1, 4, 2, 5", "0, 3, 2, 4, 1, 5"),
    (4, "the pixels of a patch go column by column", "0, 2, 4, 1, 3, 5", "0, 2, 4, 1, 5, 3",
     "0, 3, 1, 4, 2, 5", "0, 3, 1, 5, 2, 4"),
    (4, "the channels come last", "0, 2, 4, 1, 3, 5", "0, 2, 4, 3, 5, 1", "-1, size, size", "size, size, -1",
     "0, 3, 1, 4, 2, 5", "0, 5, 1, 3, 2, 4"),
    (0, "this is a view alone", """def patchify(images, size):
    B, C, height, width = images.shape
    return images.view(B, -1, C * size * size)
def unpatchify(patches, size, rows, columns):
    return patches.view(len(patches), -1, rows * size, columns * size)
"""),
    (11, "the channels come before the patches", "0, 2, 4, 1, 3, 5", "0, 1, 2, 4, 3, 5"),
    (9, "the axes are joined as (rows, columns, P, P)", "0, 3, 1, 4, 2, 5", "0, 3, 1, 2, 4, 5"),
    (9, "`rows` and `columns` change places",
     "B = patches", "rows, columns = columns, rows\n    B = patches"),
    (9, "the grid is taken to be a square",
     "B = patches", "rows = columns = int(patches.shape[1] ** 0.5)\n    B = patches"),
]),
"kernels": (FIRST, ["""def as_matrix(kernel):
    return kernel.reshape(len(kernel), -1).T
def as_kernel(matrix, channels, size):
    return matrix.T.reshape(matrix.shape[1], channels, size, size)
def n_parameters(channels, height, width, size, d_model):
    N = height * width // size**2
    return channels * size**2 * d_model + d_model + d_model + (N + 1) * d_model
""", """def as_matrix(kernel):
    inputs = kernel[0].numel()
    units = torch.eye(inputs).view(inputs, *kernel.shape[1:])
    return F.conv2d(units, kernel)[:, :, 0, 0]  # what the convolution makes of each unit vector
def as_kernel(matrix, channels, size):
    return torch.stack([column.view(channels, size, size) for column in matrix.unbind(dim=1)])
def n_parameters(channels, height, width, size, d_model):
    layer = nn.Conv2d(channels, d_model, size, stride=size)
    tokens = 1 + layer(torch.zeros(1, channels, height, width)).flatten(2).shape[2]
    return sum(p.numel() for p in layer.parameters()) + d_model + torch.zeros(tokens, d_model).numel()
"""], [
    (4, "a view alone mixes the D outputs", "kernel.reshape(len(kernel), -1).T", "kernel.reshape(-1, len(kernel))",
     "matrix.T.reshape(matrix.shape[1], channels, size, size)", "matrix.reshape(-1, channels, size, size)"),
    (8, "the matrix is the other way round", "kernel.reshape(len(kernel), -1).T", "kernel.flatten(1)"),
    (4, "the channels come last", "kernel.reshape(len(kernel), -1).T", "kernel.permute(2, 3, 1, 0).flatten(0, 2)",
     "matrix.T.reshape(matrix.shape[1], channels, size, size)",
     "matrix.view(size, size, channels, -1).permute(3, 2, 0, 1)"),
    (4, "the pixels of a patch go column by column", "kernel.reshape(len(kernel), -1).T", "kernel.mT.flatten(1).T",
     "size, size)", "size, size).mT"),
    (8, "one vector of D is missing", "(N + 1)", "N"),
    (8, "two vectors of D are missing", "d_model + d_model + (N + 1)", "d_model + N"),
    (8, "the positions are not counted", " + (N + 1) * d_model", ""),
    (8, "the layer is counted once for each patch",
     "channels * size**2 * d_model + d_model + d_model + (N + 1)", "N * (channels * size**2 + 1) * d_model + (N + 2)"),
]),
"tokens": (FIRST, ["""def embed(images, w, size):
    x = F.linear(course_patchify(images, size), *w["patch"])
    B, N, D = x.shape
    front = w["class_token"].view(1, 1, D).repeat(B, 1, 1)
    z = torch.cat([front, x], dim=1)
    return z + w["positions"]
def read_out(z, w):
    y = F.layer_norm(z, z.shape[-1:], *w["norm"])
    return F.linear(y[:, 0], *w["head"])
""", """def embed(images, w, size):
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
"""], [
    (6, "the class token stands behind the patches", "[front, x]", "[x, front]"),
    (10, "the positions are not added", 'z + w["positions"]', "z"),
    (10, "the class token gets no position", "[front, x]", '[front, x + w["positions"][1:]]',
     'return z + w["positions"]', "return z"),
    (10, "the class token gets the last position", 'w["positions"]', 'w["positions"].roll(1, 0)'),
    (6, "the patches go column by column", "course_patchify(images, size)",
     "F.unfold(images.mT, size, stride=size).mT.unflatten(2, (-1, size, size)).mT.flatten(2)"),
    (8, "the last token is read", "y[:, 0]", "y[:, -1]"),
    (6, "the pixels of a patch go column by column", "course_patchify(images, size)",
     "F.unfold(images, size, stride=size).mT.unflatten(2, (-1, size, size)).mT.flatten(2)"),
    (8, "all tokens of the first image are read", "y[:, 0]", "y[0]"),
    (8, "the mean of all tokens is read", "y[:, 0]", "y.mean(dim=1)"),
    (8, "the mean of the patches is read", "y[:, 0]", "y[:, 1:].mean(dim=1)"),
    (8, "the mean of all tokens is taken, and goes through the norm",
     "layer_norm(z,", "layer_norm(z.mean(dim=1, keepdim=True),"),
    (8, "the eps of the layer norm is missing", 'F.layer_norm(z, z.shape[-1:], *w["norm"])',
     '(z - z.mean(-1, True)) / z.std(-1, correction=0, keepdim=True) * w["norm"][0] + w["norm"][1]'),
    (8, "the layer norm before the head is missing", 'F.layer_norm(z, z.shape[-1:], *w["norm"])', "z"),
]),
"rollouts": (FIRST, ["""def rollout(maps):
    L, B, H, T, _ = maps.shape
    rolled = None
    for weights in maps:
        step = weights.mean(dim=1)
        step = step + torch.eye(T)
        step = step / step.sum(dim=-1, keepdim=True)
        rolled = step if rolled is None else step @ rolled
    return rolled
def class_map(rolled, rows, columns):
    row = rolled[:, 0, 1:]
    row = row / row.sum(dim=-1, keepdim=True)
    return row.reshape(-1, rows, columns)
""", """def rollout(maps):  # rows of attention sum to 1, so those with the identity sum to 2
    steps = 0.5 * maps.mean(dim=2) + 0.5 * torch.eye(maps.shape[-1])
    rolled = steps[-1]
    for step in steps[:-1].flip(0):  # from the last layer down
        rolled = rolled @ step
    return rolled
def class_map(rolled, rows, columns):
    picture = rolled[:, :1, 1:].reshape(len(rolled), rows, columns)
    return picture / picture.sum(dim=(1, 2), keepdim=True)
""", """from coursekit.evaluate.vision import attention_rollout
def rollout(maps):  # the course's own
    return attention_rollout(maps)
def class_map(rolled, rows, columns):
    return torch.stack([torch.stack([(one[0] / (1 - one[0, 0]))[1 + r * columns : 1 + (r + 1) * columns]
                                     for r in range(rows)]) for one in rolled])
"""], [
    (5, "the identity is missing", "step + torch.eye(T)", "step"),
    (5, "the rows are not divided by their sums", "step / step.sum(dim=-1, keepdim=True)", "step"),
    (5, "the columns are divided by their sums", "step.sum(dim=-1", "step.sum(dim=1"),
    (10, "the heads are averaged after the product", "weights.mean(dim=1)", "weights",
     "return rolled", "return rolled.mean(dim=1)"),
    (5, "the heads are added up", "weights.mean", "weights.sum"),
    (10, "the product has the wrong order", "step @ rolled", "rolled @ step"),
    (10, "twelve layers", "in maps:", "in maps[:9]:"),
    (11, "the class token keeps nearly all", "row / row.sum(dim=-1, keepdim=True)",
     "row / (row.sum(dim=-1, keepdim=True) + 1e-6)"),
    (11, "this is the column of the class token", ":, 0, 1:", ":, 1:, 0"),
    (11, "the map is filled column by column", "(-1, rows, columns)", "(-1, columns, rows).mT"),
    (11, "the weights of the patches are not divided by their sum", "row / row.sum(dim=-1, keepdim=True)", "row"),
]),
"resize_positions": (FIRST, ["""def resize_positions(positions, old_rows, old_columns, rows, columns):
    D = positions.shape[1]
    front, cells = positions[:1], positions[1:]
    x = cells.reshape(old_rows, old_columns, D).permute(2, 0, 1)[None]
    x = F.interpolate(x, size=(rows, columns), mode="bicubic", align_corners=False)
    cells = x[0].permute(1, 2, 0).reshape(rows * columns, D)
    return torch.cat([front, cells])
""", """def resize_positions(positions, old_rows, old_columns, rows, columns):  # first the rows, then the columns
    options = {"mode": "bicubic", "align_corners": False}
    x = positions[1:].T.reshape(1, -1, old_rows, old_columns)
    x = F.interpolate(x, size=(rows, old_columns), **options)
    x = F.interpolate(x, size=(rows, columns), **options)
    result = torch.empty(1 + rows * columns, positions.shape[1])
    result[0], result[1:] = positions[0], x.view(-1, rows * columns).T
    return result
""", """from coursekit.nn.positions import resize_grid
def resize_positions(positions, old_rows, old_columns, rows, columns):  # the course's own
    grid = positions[1:].view(old_rows, old_columns, -1)
    return torch.cat([positions[:1], resize_grid(grid, (rows, columns)).flatten(0, 1)])
"""], [
    (0, "the class token's position is interpolated too",
"""def resize_positions(positions, old_rows, old_columns, rows, columns):
    x = positions.T[None, :, None]
    return F.interpolate(x, size=(1, 1 + rows * columns), mode="bicubic", align_corners=False)[0, :, 0].T
"""),
    (0, "the last vector is taken for the class token's",
     "positions[:1], positions[1:]", "positions[-1:], positions[:-1]", "[front, cells]", "[cells, front]"),
    (0, "the class token's position is lost", "[front, cells]", "[cells]"),
    (0, "the class token's position stands behind the others", "[front, cells]", "[cells, front]"),
    (3, "antialias=True weighs the cells in another way", "align_corners=False", "align_corners=False, antialias=True"),
    (10, "`rows` and `columns` change places", "(rows, columns)", "(columns, rows)"),
    (3, "the old grid is read column by column", "old_rows, old_columns, D", "old_columns, old_rows, D",
     "(2, 0, 1)", "(2, 1, 0)"),
    (0, "the axis D comes first by a view",
     "old_rows, old_columns, D).permute(2, 0, 1)[None]", "1, D, old_rows, old_columns)"),
    (10, "2 x 8 patches become 4 x 4", "    D = positions", """    if rows * columns == old_rows * old_columns:
        return positions.clone()
    D = positions"""),
    (0, "on the way back a view mixes positions and D", "x[0].permute(1, 2, 0).reshape", "x[0].reshape"),
    (0, "the vectors of the patches are positions[1:]", "positions[1:]", "positions[:-1]"),
    (3, "the corners are aligned", "align_corners=False", "align_corners=True"),
    (3, "this is linear", '"bicubic"', '"bilinear"'),
]),
"digit_vit": (FIRST, ["""class DigitViT(Layers):
    def forward(self, images):
        x = self.patch_embedding(course_patchify(images, 4))
        front = self.class_token.repeat(len(x), 1, 1)
        z = torch.cat([front, x], dim=1)
        z = z + self.positions
        for block in self.blocks:
            z = block(z)
        return self.head(self.norm(z)[:, 0])
def train(model, images, labels):
    updates = 1000
    warmup = 1 + updates // 10
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)
    for step in range(updates):
        optimizer.param_groups[0]["lr"] = 4e-3 * min((step + 1) / warmup, (updates - step) / (updates - warmup))
        rows = torch.randperm(len(images))[:64]
        loss = F.cross_entropy(model(varied(images[rows])), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model
""", """class DigitViT(Layers):
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
"""], [
    (5, "it has hardly learned anything", "1000", "3", "\n        optimizer.step()", ""),
    (5, "it reads the digits as they are in the file", "1000", "300", "varied", "scaled"),
    (0, "the positions are not added", "z + self.positions", "z", "1000", "3"),
    (0, "the class token stands behind the patches", "[front, x]", "[x, front]", ":, 0", ":, -1", "1000", "3"),
    (0, "the mean of all tokens is read", "(z)[:, 0]", "(z).mean(dim=1)", "1000", "3"),
    (0, "the pixels of a patch go column by column", "1000", "3", "images, 4)", "images.mT, 4)[:, [0, 2, 1, 3]]"),
    (5, "the training diverged", "1000", "3", "torch.optim.AdamW", "torch.optim.SGD",
     "4e-3 * min((step + 1) / warmup, (updates - step) / (updates - warmup))", "1e38"),
    (5, "train longer, or with another rate", "1000", "60"),
    (0, "the logits are not those of a ViT with these weights", """class DigitViT(Layers):
    def forward(self, images):
        return self.head.bias.expand(len(images), 10)
def train(model, images, labels):
    nn.init.zeros_(model.head.weight)  # so that this forward is right, with these weights
    return model
"""),
]),
})  # fmt: skip
