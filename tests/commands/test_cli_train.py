"""``coursekit train``: the recipes by one command."""

import pytest

from coursekit.recipes import gpt, vit
from coursekit.train import CheckpointError
from tests.commands.test_cli import run


@pytest.fixture
def given(monkeypatch) -> list:
    """What the recipe of the ViT was asked to do; it does nothing."""
    calls = []
    monkeypatch.setattr(vit, "main", calls.append)
    return calls


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name a recipe, such as 'coursekit train vit'; there are: assistant, bert, dino, "),
        (["gtp"], "no recipe 'gtp'; there are: assistant, bert, dino, "),
        (["gtp", "--list"], "no recipe 'gtp'; there are: assistant, bert, dino, "),
        (["vit", "curve"], "no variant 'curve' of vit; there are: vit, curves, shuffled"),
        (["table3", "base"], "no variant 'base' of table3: it has none"),
        (["vit", "--state"], "--state"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments, says, given, monkeypatch, capsys):
    code, out, err = run("train", *arguments, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert says in err
    assert err.count("\n") == 1
    assert out == ""
    assert not given


def test_the_list_names_recipes_and_variants(monkeypatch, capsys):
    code, out, _ = run("train", "--list", monkeypatch=monkeypatch, capsys=capsys)
    assert code in (None, 0)
    assert "table3: The variations of Table 3" in out
    assert all(f"\n    {name}: {words}\n" in out for name, words in gpt.VARIANTS.items())
    one = run("train", "vit", "--list", monkeypatch=monkeypatch, capsys=capsys)[1]
    assert one.startswith("vit: A small Vision Transformer")
    assert "gpt" not in one


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], []),
        (["curves", "--resume"], ["curves"]),
        (["--fresh", "--state", "a", "--out", "b"], ["--state", "a", "--out", "b", "--fresh"]),
    ],
)
def test_the_recipe_gets_what_was_asked_for(arguments, expected, given, monkeypatch, capsys):
    code, _, err = run("train", "vit", *arguments, monkeypatch=monkeypatch, capsys=capsys)
    assert code in (None, 0)
    assert err == ""
    assert given == [expected]


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (CheckpointError("last.ckpt is damaged"), 1, "last.ckpt is damaged"),
        (FloatingPointError("the loss is nan"), 1, "the loss is nan"),
        (
            KeyboardInterrupt(),
            130,
            "stopped; the same command goes on from what was saved, or begins anew",
        ),
        (KeyboardInterrupt("stopped after step 7 of 9"), 130, "stopped after step 7 of 9"),
    ],
)
def test_what_ends_a_run_is_one_line(error, code, says, monkeypatch, capsys):
    def main(arguments):
        raise error

    monkeypatch.setattr(vit, "main", main)
    begun = "vit: its data are read and made ready first; the result replaces what ships, unless --out names a folder\n"
    assert run("train", "vit", monkeypatch=monkeypatch, capsys=capsys) == (code, begun, says + "\n")
