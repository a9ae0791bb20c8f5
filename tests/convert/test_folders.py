"""What is the same for every model in Hugging Face's layout: its folder is small and whole, others are refused."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save, save_file

from coursekit.models.bert import Bert, BertConfig, BertForPreTraining
from coursekit.models.gpt import GPT, GPTConfig
from coursekit.models.llama import Llama, LlamaConfig
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


# --- shards ---------------------------------------------------------------------------------------------------

SHARDS = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
INDEX = "model.safetensors.index.json"


def shard(folder) -> dict[str, str]:
    """Cut the weights of a folder into three files; where each is."""
    weights = load_file(folder / "model.safetensors")
    weights = {name: tensor.clone() for name, tensor in weights.items()}
    (folder / "model.safetensors").unlink()
    places = {name: SHARDS[i % 3] for i, name in enumerate(sorted(weights))}
    for one in SHARDS:
        save_file({name: weights[name] for name, place in places.items() if place == one}, folder / one)
    write_index(folder, places)
    return places


def write_index(folder, places) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))


def test_shards_are_read_as_the_one_file_is(tmp_path, kind):
    expected = write(kind, tmp_path).state_dict()
    shard(tmp_path)
    found = kind.from_pretrained(tmp_path)
    assert not found.training
    assert found.state_dict().keys() == expected.keys()
    assert all(torch.equal(weight, expected[name]) for name, weight in found.state_dict().items())
    other = write(kind, tmp_path)  # now there are both: as in transformers, the one file goes before
    with torch.no_grad():
        next(other.parameters()).fill_(7)
    other.save_pretrained(tmp_path)
    assert torch.equal(next(kind.from_pretrained(tmp_path).parameters()), next(other.parameters()))


def test_every_missing_shard_is_named(tmp_path, kind):
    write(kind, tmp_path)
    shard(tmp_path)
    (tmp_path / SHARDS[0]).unlink()
    words = rf"has no {SHARDS[0]}: model\.safetensors\.index\.json names 3 files, give all$"
    with pytest.raises(ValueError, match=words):
        kind.from_pretrained(tmp_path)
    (tmp_path / SHARDS[2]).unlink()
    with pytest.raises(ValueError, match=rf"has no {SHARDS[0]}, {SHARDS[2]}: "):
        kind.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "place",
    ["../outside.safetensors", "/outside.safetensors", "sub/outside.safetensors", "..\\outside.safetensors", "..", "",
     "C:outside.safetensors", ".hidden.safetensors", "pytorch_model.bin", "outside.safetensors\n", 3, None, ["a"]],
)  # fmt: skip
def test_no_name_in_an_index_leads_elsewhere(tmp_path, kind, place):
    """Each of these files is there, whole, and would fit."""
    folder = tmp_path / "model"
    write(kind, folder)
    places = shard(folder)
    (folder / "sub").mkdir()
    for one in ("../outside.safetensors", "sub/outside.safetensors", ".hidden.safetensors", "pytorch_model.bin"):
        shutil.copy(folder / SHARDS[0], folder / one)
    write_index(folder, {name: place if one == SHARDS[0] else one for name, one in places.items()})
    with pytest.raises(
        ValueError, match=r"index\.json names .*, and only \.safetensors files in its own folder are read$"
    ):
        kind.from_pretrained(folder)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {}}', '{"weight_map": {', "[" * 10**5]
)
def test_a_damaged_index_is_refused(tmp_path, kind, text):
    write(kind, tmp_path)
    shard(tmp_path)
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(ValueError, match=r"index\.json is no index of weights: ") as error:
        kind.from_pretrained(tmp_path)
    assert "\n" not in str(error.value)


def test_shards_of_two_models_are_refused(tmp_path, kind):
    write(kind, tmp_path)
    places = shard(tmp_path)
    first = next(name for name, place in places.items() if place == SHARDS[0])
    write_index(tmp_path, places | {first: SHARDS[1]})
    with pytest.raises(ValueError, match=rf"{SHARDS[0]} has {first}, and .* says otherwise: they are not of one model"):
        kind.from_pretrained(tmp_path)
    write_index(tmp_path, places | {"more": SHARDS[0]})
    with pytest.raises(ValueError, match=rf"{SHARDS[0]} lacks more, and .* says otherwise"):
        kind.from_pretrained(tmp_path)
    write_index(tmp_path, places)
    (tmp_path / SHARDS[1]).write_bytes((tmp_path / SHARDS[1]).read_bytes()[:-1])
    with pytest.raises(ValueError, match=rf"{SHARDS[1]} cannot be read as safetensors"):
        kind.from_pretrained(tmp_path)


MEMORY = """
import sys
from coursekit.models.llama import Llama
def told(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024
Llama.from_pretrained(sys.argv[1])
before = told("RssAnon"), told("VmRSS")
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
model = Llama.from_pretrained(sys.argv[2])
print(told("RssAnon") - before[0], told("VmHWM") - before[1], sum(p.numel() for p in model.parameters()) * 4)
"""


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="Linux alone tells the peak")
def test_the_weights_of_shards_take_memory_once(tmp_path):
    """Beside them only pages of the mapped files are there, which the system may drop: a file of its size at most."""
    small = LlamaConfig(40, 64, 4, 4, 96, 1)
    for name, config in (("small", small), ("large", replace(small, vocab_size=50_000))):
        Llama(config).save_pretrained(tmp_path / name)
        shard(tmp_path / name)
    run = [sys.executable, "-c", MEMORY, str(tmp_path / "small"), str(tmp_path / "large")]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    own, peak, weights = map(int, done.stdout.split())
    assert weights > 25e6
    assert 0.9 * weights < own < weights + 5e6
    assert peak < 2 * weights + 5e6
