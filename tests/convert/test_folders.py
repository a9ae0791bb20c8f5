"""What is the same for every model in Hugging Face's layout: its folder is small and whole, others are refused."""

import json
import os
import shutil

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save

from coursekit.models.bert import Bert, BertConfig, BertForPreTraining
from coursekit.models.gpt import GPT, GPTConfig
from coursekit.models.vit import ViT, ViTConfig
from tests.conftest import randomise

SIZES = {"d_model": 12, "n_heads": 3, "d_ff": 20, "n_layers": 2}
CONFIGS = {
    Bert: BertConfig(40, max_length=16, **SIZES),
    GPT: GPTConfig(40, max_length=16, **SIZES),
    ViT: ViTConfig(12, 3, 2, classes=5, **SIZES),
}
OTHER = {Bert: "gpt2", GPT: "bert", ViT: "bert"}  # the model_type of what it is not
KNOWN = {Bert: "only Bert, BertForPreTraining, ", GPT: "only GPT has", ViT: "only ViT has"}


@pytest.fixture(params=CONFIGS)
def kind(request):
    return request.param


def write(kind, folder):
    model = randomise(kind(CONFIGS[kind]))
    model.save_pretrained(folder)
    return model


def files_in(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- what is written ------------------------------------------------------------------------------------------


def test_the_file_is_small_and_says_what_it_is(tmp_path, kind):
    """A tied matrix is stored once, and others may read the file."""
    model = kind(CONFIGS[kind])
    if kind is Bert:  # where the head's matrix is tied to that of the embeddings
        model = BertForPreTraining(model)
    model.save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
        sizes = [file.get_tensor(name).numel() for name in file.keys()]  # noqa: SIM118
    assert sum(sizes) == sum(p.numel() for p in model.parameters())
    modes = {(tmp_path / name).stat().st_mode for name in ("config.json", "model.safetensors")}
    assert len(modes) == 1


def test_a_failed_write_leaves_the_old_model_and_no_litter(tmp_path, monkeypatch, kind):
    model = write(kind, tmp_path)
    before = files_in(tmp_path)

    def full(tensors, path, metadata):
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("coursekit.convert.hub.save_file", full)
    with pytest.raises(OSError, match="disk full"):
        randomise(model, seed=1).save_pretrained(tmp_path)
    assert files_in(tmp_path) == before


def test_a_model_of_ones_own_has_no_place_there(tmp_path, kind):
    class Mine(kind):
        pass

    with pytest.raises(ValueError, match=f"Mine has no place in Hugging Face's layout: {KNOWN[kind]}"):
        Mine(CONFIGS[kind]).save_pretrained(tmp_path)
    assert not files_in(tmp_path)
    write(kind, tmp_path)
    with pytest.raises(ValueError, match="Mine has no place in Hugging Face's layout"):
        Mine.from_pretrained(tmp_path)


# --- what is refused ------------------------------------------------------------------------------------------


def test_folders_that_cannot_be_used_are_refused_in_a_sentence(tmp_path, kind):
    with pytest.raises(ValueError, match=r"'nowhere/at/all' is no folder, and no name of a model on the hub such as"):
        kind.from_pretrained("nowhere/at/all")
    with pytest.raises(ValueError, match=r"has no config\.json: give a folder that save_pretrained has written"):
        kind.from_pretrained(tmp_path)
    write(kind, tmp_path)
    weights = tmp_path / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"model\.safetensors cannot be read as safetensors"):
        kind.from_pretrained(tmp_path)
    weights.unlink()
    with pytest.raises(ValueError, match=r"has no model\.safetensors: give a folder"):
        kind.from_pretrained(tmp_path)
    weights.write_bytes(content)
    for text in ("{", "[]"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ValueError, match=r"config\.json is no configuration"):
            kind.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": OTHER[kind]}))
    for found in (content, save({})):
        weights.write_bytes(found)
        with pytest.raises(ValueError, match=rf"^{tmp_path}: model_type='{OTHER[kind]}'"):
            kind.from_pretrained(tmp_path)


def test_a_pickle_is_never_opened(tmp_path, kind):
    """Not even looked into: this one would run a command."""
    write(kind, tmp_path)
    (tmp_path / "model.safetensors").unlink()

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    torch.save(Trap(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"has no model\.safetensors: pytorch_model\.bin is a pickle") as error:
        kind.from_pretrained(tmp_path)
    assert str(error.value).count("\n") == 0
    assert not (tmp_path / "sprung").exists()
    shutil.copy(tmp_path / "pytorch_model.bin", tmp_path / "model.safetensors")  # under another name
    with pytest.raises(ValueError, match="cannot be read as safetensors"):
        kind.from_pretrained(tmp_path)
    assert not (tmp_path / "sprung").exists()
