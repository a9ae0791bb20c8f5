import numpy as np
import pytest
import torch
from torch import nn

from coursekit.models.transformer import Transformer, TransformerConfig
from coursekit.viz import Flow
from coursekit.viz.flow import Stage, strided
from tests.conftest import randomise
from tests.viz.page import page_of, status


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.dropout = nn.Dropout(0.9)

    def forward(self, x, scale=None):
        return self.dropout(self.linear(x)) * scale, scale


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(2, 2)
        self.parts = nn.ModuleList([Inner(), Inner()])

    def forward(self, x):
        first, _ = self.parts[0](x, scale=torch.tensor(2.0))
        return {"sum": first.sum(), "nothing": self.parts[1](x, scale=torch.tensor(3.0))[0]}


def outer() -> Outer:
    return randomise(Outer())


X = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(1))


def test_a_trace_tells_calls_shapes_and_numbers():
    model = outer()
    stages = Flow.trace(model, X).stages
    assert [(s.name, s.kind, s.depth) for s in stages] == [
        ("", "Outer", 0),
        ("parts.0", "Inner", 1),
        ("parts.0.linear", "Linear", 2),
        ("parts.1", "Inner", 1),
        ("parts.1.linear", "Linear", 2),
    ]
    linear = stages[4]
    expected = model.parts[1].linear(X).detach().double().numpy()
    assert (linear.inputs, linear.outputs, linear.parameters) == (((2, 5, 6),), ((2, 5, 4),), 28)
    measured = [linear.mean, linear.std, linear.low, linear.high]
    np.testing.assert_allclose(measured, [expected.mean(), expected.std(), expected.min(), expected.max()], rtol=1e-6)
    np.testing.assert_allclose(linear.sample, expected[0], rtol=1e-6)
    inner = stages[3]
    assert inner.inputs == ((2, 5, 6), ()), "keyword inputs count too"
    assert inner.outputs == ((2, 5, 4), ())
    assert stages[0].outputs == ((), (2, 5, 4))
    assert stages[0].parameters == 2 * 28 + 6
    assert stages[0].sample.shape == (1, 1)


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.frozen = nn.Linear(6, 6), nn.Dropout()
        self.frozen.eval()

    def forward(self, x):
        self.linear(x)
        raise RuntimeError("broken")


@pytest.mark.parametrize("model", [outer(), Broken()], ids=["runs", "fails"])
def test_a_trace_leaves_the_model_as_it_was(model):
    before = [module.training for module in model.modules()]
    if isinstance(model, Broken):
        assert before == [True, True, False]
        with pytest.raises(RuntimeError, match="broken"):
            Flow.trace(model, X)
    else:
        stages = Flow.trace(model, X).stages
        again = Flow.trace(model, X).stages
        assert all(np.array_equal(a.sample, b.sample) for a, b in zip(stages, again))  # dropout was off
    assert [module.training for module in model.modules()] == before
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


def test_what_is_no_model_is_refused():
    with pytest.raises(ValueError, match="a function cannot be traced"):
        Flow.trace(lambda x: x, X)
    with pytest.raises(ValueError, match="0 stages"):
        Flow([])
    stage = Flow.trace(nn.Identity(), X).stages[0]
    with pytest.raises(ValueError, match="1001 stages: between 1 and 1000"):
        Flow([stage] * 1001)


def test_samples_take_the_first_of_the_batch_evenly_strided():
    table = np.arange(100 * 70.0).reshape(100, 70)
    sample = strided(table, 16, 32)
    assert sample.shape == (16, 32)
    assert (sample[0, 0], sample[-1, -1]) == (table[0, 0], table[-1, -1])
    assert set(np.diff(sample[:, 0])) <= {6 * 70, 7 * 70}
    assert set(np.diff(sample[0])) <= {2, 3}
    heads = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
    np.testing.assert_array_equal(Flow.trace(nn.Identity(), heads).stages[0].sample, heads[0].reshape(12, 5))


@pytest.mark.parametrize("x", [torch.zeros(0, 3), torch.ones(2, 3, dtype=torch.bool), torch.tensor([1, 2]),
                               torch.ones(2, 3, dtype=torch.bfloat16)], ids=str)  # fmt: skip
def test_any_kind_of_tensor(x):
    stage = Flow.trace(nn.Identity(), x).stages[0]
    assert stage.outputs == (tuple(x.shape),)
    assert stage.sample.size == x[:1].numel() if x.dim() > 1 else 2


@pytest.fixture(scope="module")
def transformer():
    torch.manual_seed(0)
    sizes = {"vocab_size": 30, "d_model": 64, "n_heads": 4, "d_ff": 128, "n_layers": 3, "max_length": 16}
    model = Transformer(TransformerConfig(**sizes))
    ids = torch.randint(3, 30, (2, 7))
    return Flow.trace(model, ids, torch.ones_like(ids, dtype=torch.bool), ids[:, :6])


def test_a_transformer_fits(transformer):
    assert len(transformer._repr_html_().encode()) <= 1_000_000
    assert len(Flow([transformer.stages[1]] * 1000)._repr_html_().encode()) <= 1_000_000
    shorts = [stage["short"] for stage in transformer.data["stages"][:9]]
    assert shorts[:5] == ["Transformer", "embedding", "positions", "encoder.0", "attention_residual"]
    assert "encoder.0.attention.qkv" in [stage.name for stage in transformer.stages]
    html = transformer.static_html()
    stage = next(s for s in transformer.stages if s.name == "decoder.1.feed_forward.up")
    row = html[html.index("up</th>", html.index("decoder.1")) :].split("</tr>")[0]
    assert "(2, 6, 128)" in row
    assert "8,320" in row
    assert f"{stage.std:.3g}" in row


@pytest.mark.browser
def test_stepping_shows_every_stage(browser, transformer):
    page = page_of(browser, transformer._repr_html_())
    first = sum(stage.depth <= 1 for stage in transformer.stages)
    assert page.get_by_role("treeitem").count() == first, "a large model opens with its first level"
    page.get_by_role("button", name="Open all").click()
    assert page.get_by_role("treeitem").count() == len(transformer.stages)
    for i, stage in enumerate(transformer.stages[:30]):
        text = page.locator(".about").inner_text()
        shapes = ", ".join(map(str, stage.inputs)) + " → " + ", ".join(map(str, stage.outputs))
        assert shapes in text
        assert status(page).startswith(f"{stage.name}, {stage.kind}: takes" if stage.name else "Transformer: takes")
        facts = page.locator(".about dd").all_inner_texts()
        shown = [float(fact.replace("−", "-").replace(",", "")) for fact in facts]
        wanted = [stage.parameters, stage.mean, stage.std, stage.low, stage.high]
        np.testing.assert_allclose(shown, wanted, rtol=0.00501)
        assert page.locator("[aria-selected=true]").get_attribute("data-stage") == str(i)
        pixels = page.locator(".about canvas").evaluate(
            "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)"
        )
        rgb = np.reshape(pixels, (*stage.sample.shape, 4)).astype(int)
        assert ((rgb[..., 0] > rgb[..., 2]) <= (stage.sample > 0)).all(), "orange only above zero"
        strong = abs(stage.sample) > 0.2 * abs(stage.sample).max()
        assert ((rgb[..., 0] > rgb[..., 2]) == (stage.sample > 0))[strong].all()
        page.get_by_role("button", name="Next").click()
    assert page.errors == []


@pytest.mark.browser
def test_the_tree_obeys_the_keys_of_trees(browser):
    page = page_of(browser, Flow.trace(outer(), X)._repr_html_())
    items = page.get_by_role("treeitem")
    items.nth(0).focus()
    seen = []
    for key in ["Down", "Left", "Down", "Up", "Right", "Right", "Left", "End", "Left", "Home"]:
        page.keyboard.press(key if key in ("End", "Home") else f"Arrow{key}")
        focused = page.evaluate("document.activeElement.title")
        assert status(page).startswith(f"{focused}, " if focused != "Outer" else "Outer:")
        seen.append((focused, items.count()))
    assert seen == [
        ("parts.0", 5),
        ("parts.0", 4),  # closed
        ("parts.1", 4),
        ("parts.0", 4),
        ("parts.0", 5),  # opened
        ("parts.0.linear", 5),
        ("parts.0", 5),
        ("parts.1.linear", 5),
        ("parts.1", 5),
        ("Outer", 5),
    ]


@pytest.mark.browser
def test_a_stage_without_numbers(browser):
    empty = Stage("", "Nothing", 0, (), (), 0, *[float("nan")] * 4, np.zeros((0, 0)))
    page = page_of(browser, Flow([empty])._repr_html_())
    assert status(page) == "Nothing: takes –, gives –, no numbers."
    assert page.errors == []
