"""Our ViT beside transformers': all parameters randomised; files read and written both ways, with old and new names."""

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from coursekit.convert.vit import from_hugging_face, to_hugging_face, vit_config
from coursekit.models.vit import ViT, ViTConfig, vit_loss
from coursekit.nn.attention import record_attention
from tests.conftest import randomise

SIDE, P, C = 12, 3, 2
SIZES = {"hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 20}
SIZES |= {"image_size": SIDE, "patch_size": P, "num_channels": C, "encoder_stride": P}
LABELS = ["cat", "dog", "bird", "tree", "cup"]
# theirs -> our classes and representation_size
KINDS = {"ViTForImageClassification": (5, 0), "ViTModel": (0, 12), "ViTModel without a pooler": (0, 0)}
PIXELS = {"native": (12, 12), "wide": (6, 24), "large": (27, 24), "one patch": (3, 3)}  # wide: as many patches


def theirs_of(kind: str, seed: int = 0, **changes):
    import transformers

    name, _, without = kind.partition(" ")
    config = SIZES | {"attn_implementation": "sdpa"} | changes  # which stays in float64, where eager does not
    if "Class" in kind:
        config |= {"id2label": dict(enumerate(LABELS)), "label2id": {label: i for i, label in enumerate(LABELS)}}
    model = getattr(transformers, name)(
        transformers.ViTConfig(**config), **{"add_pooling_layer": False} if without else {}
    )
    randomise(model, seed).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "layernorm" in name and name.endswith("weight"):
                p += 1  # much smaller, and each block says less of the patches than the one before
    return model


def ours_of(theirs) -> ViT:
    return from_hugging_face(ViT, theirs.config.to_dict(), theirs.state_dict())


def pictures(height: int = SIDE, width: int = SIDE, B: int = 3, seed: int = 0) -> torch.Tensor:
    return torch.randn(B, C, height, width, generator=torch.Generator().manual_seed(seed))


def said(theirs, images) -> torch.Tensor:
    """What theirs says in the place of our ``forward``: logits, or the pooled vector."""
    out = theirs(images, interpolate_pos_encoding=True)
    if hasattr(out, "logits"):
        return out.logits
    return out.last_hidden_state[:, 0] if out.pooler_output is None else out.pooler_output


@pytest.mark.parametrize("pixels", PIXELS.values(), ids=PIXELS)
@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_all_gradients_equal_transformers(kind, pixels):
    theirs, images = theirs_of(kind), pictures(*pixels)
    ours = ours_of(theirs)
    assert (ours.config.classes, ours.config.representation_size) == KINDS[kind]
    found, expected = ours(images), said(theirs, images)
    assert expected.std() > 0.1, "it says nothing"
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    ours, theirs, images = ours.double(), theirs.double(), images.double()
    found, expected = ours(images), said(theirs, images)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for model, out in ((ours, found), (theirs, expected)):
        (out * weights).sum().backward()
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(p.grad)
    _, found = to_hugging_face(ours)  # the gradients by the names of files
    expected = {file_name(name): p for name, p in theirs.named_parameters()}
    assert {name.removeprefix("vit.") for name in found} == set(expected)
    for name, gradient in found.items():
        wanted = expected[name.removeprefix("vit.")]
        if "key.bias" not in name:  # which softmax takes no notice of
            assert wanted.abs().max() > 1e-3, f"{name}: it says nothing"
        torch.testing.assert_close(gradient, wanted, atol=1e-9, rtol=1e-9, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("pixels", PIXELS.values(), ids=PIXELS)
def test_states_and_attention_are_theirs(pixels):
    theirs = theirs_of("ViTForImageClassification", attn_implementation="eager")  # which shows its weights
    images = pictures(*pixels)
    out = theirs(images, interpolate_pos_encoding=True, output_hidden_states=True, output_attentions=True)
    ours = ours_of(theirs)
    with record_attention(ours) as maps:
        states = ours.hidden_states(images)
    for found, expected in zip(states, out.hidden_states, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for (found,), expected in zip(maps.values(), out.attentions, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    last = theirs.vit(images, interpolate_pos_encoding=True).last_hidden_state
    torch.testing.assert_close(ours.hidden(images), last, atol=1e-5, rtol=1e-5)


@settings(max_examples=25)
@given(st.sampled_from(sorted(KINDS)), st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 9))
def test_logits_equal_transformers_for_images_of_any_size(kind, seed, rows, columns):
    theirs, images = theirs_of(kind, seed % 5), pictures(rows * P, columns * P, 2, seed)
    torch.testing.assert_close(ours_of(theirs)(images), said(theirs, images), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("eps", [1e-12, 1e-6, 0.1])
def test_the_epsilon_is_theirs(eps):
    theirs, images = theirs_of("ViTForImageClassification", layer_norm_eps=eps), pictures()
    ours = ours_of(theirs)
    assert {m.eps for m in ours.modules() if isinstance(m, torch.nn.LayerNorm)} == {eps}
    torch.testing.assert_close(ours(images), said(theirs, images), atol=1e-5, rtol=1e-5)


def test_the_loss_is_theirs():
    theirs, images, labels = theirs_of("ViTForImageClassification"), pictures(), torch.tensor([4, 0, 2])
    total, count = vit_loss(ours_of(theirs), {"images": images, "labels": labels})
    torch.testing.assert_close(total / count, theirs(images, labels=labels).loss, atol=1e-5, rtol=1e-5)


# --- files ----------------------------------------------------------------------------------------------------


def file_name(name: str) -> str:
    """A name in the memory of transformers 5, as in files without ``vit.``; written out once more. Others stay."""
    name = name.removeprefix("vit.")
    part = re.fullmatch(r"layers\.(\d+)\.(.*)\.(weight|bias)", name)
    if part is None:
        return name
    there = {
        "attention.q_proj": "attention.attention.query",
        "attention.k_proj": "attention.attention.key",
        "attention.v_proj": "attention.attention.value",
        "attention.o_proj": "attention.output.dense",
        "mlp.fc1": "intermediate.dense",
        "mlp.fc2": "output.dense",
        "layernorm_before": "layernorm_before",
        "layernorm_after": "layernorm_after",
    }
    i, module, kind = part.groups()
    return f"encoder.layer.{i}.{there[module]}.{kind}"


def bare(weights):
    return {name.removeprefix("vit."): x for name, x in weights.items()}


def renamed(weights):
    """As transformers 5 names the weights in memory."""
    import transformers

    new = {file_name(name): name for name in transformers.ViTModel(transformers.ViTConfig(**SIZES)).state_dict()}
    return {"vit." * name.startswith("vit.") + new.get(file_name(name), name): x for name, x in weights.items()}


WAYS = {
    "as transformers writes": lambda weights: weights,
    "without vit.": bare,
    "with the names of transformers 5": renamed,
    "with those, without vit.": lambda weights: bare(renamed(weights)),
    "with what else lies about": lambda weights: {
        **weights,
        "vit.embeddings.mask_token": torch.zeros(1, 1, 12),
        "decoder.0.weight": torch.zeros(18, 12, 1, 1),
        "something.else": torch.zeros(1),
    },
    "in half the precision": lambda weights: {name: x.bfloat16() for name, x in weights.items()},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_transformers_is_read(tmp_path, kind, way):
    theirs, images = theirs_of(kind), pictures()
    theirs.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    after = WAYS[way](load_file(path))
    if "5" in way:
        assert any("layers.1.attention.o_proj" in name for name in after)
        assert not any("encoder.layer" in name for name in after)
    save_file(after, path, metadata={"format": "pt"})
    ours = ViT.from_pretrained(tmp_path)
    assert not ours.training
    assert ours.labels == (tuple(LABELS) if "Class" in kind else ())
    assert all(p.dtype == torch.float32 for p in ours.parameters())
    if "half" in way:
        with torch.no_grad():
            for p in theirs.parameters():
                p.copy_(p.bfloat16())
    torch.testing.assert_close(ours(images), said(theirs, images), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_reads_what_is_written(tmp_path, kind):
    theirs, images = theirs_of(kind), pictures()
    ours_of(theirs).save_pretrained(str(tmp_path / "new" / "folder"))
    arguments = {"add_pooling_layer": False} if "without" in kind else {}
    again, info = type(theirs).from_pretrained(tmp_path / "new" / "folder", output_loading_info=True, **arguments)
    assert not any(info.values()), info
    expected = theirs.state_dict()
    assert again.state_dict().keys() == expected.keys()
    assert all(torch.equal(x, expected[name]) for name, x in again.state_dict().items())
    different = {"transformers_version", "dtype", "architectures", "_name_or_path", "_attn_implementation"}
    own, other = again.config.to_dict(), theirs.config.to_dict()
    assert not [n for n in other if n not in different and own[n] != other[n] and not n.startswith("attn")]
    assert again.config.architectures == [type(theirs).__name__]
    torch.testing.assert_close(said(again, images), said(theirs, images), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_files_have_the_names_that_both_versions_read(tmp_path, kind):
    theirs = theirs_of(kind)
    theirs.save_pretrained(tmp_path)
    _, weights = to_hugging_face(ours_of(theirs))
    expected = load_file(tmp_path / "model.safetensors")
    assert weights.keys() == expected.keys()
    assert any("encoder.layer.1.attention.attention.query.weight" in name for name in weights)
    assert all(torch.equal(x, expected[name]) for name, x in weights.items())


@pytest.mark.parametrize(
    ("changes", "labels"),
    [
        ({}, LABELS),
        ({}, []),
        ({"classes": 2}, []),
        ({"classes": 0}, []),
        ({"classes": 0, "representation_size": 7}, []),
        ({"dropout": 0.25, "drop_path": 0.125, "resize": "dino", "eps": 1e-12}, LABELS),
    ],
)
def test_what_is_written_comes_back(tmp_path, changes, labels):
    sizes = {"image_size": SIDE, "patch_size": P, "channels": C, "d_model": 12, "n_heads": 3, "d_ff": 20, "n_layers": 2}
    ours = randomise(ViT(ViTConfig(**sizes | {"classes": 5} | changes), labels))
    ours.save_pretrained(tmp_path)
    again = ViT.from_pretrained(str(tmp_path))
    assert (again.config, again.labels) == (ours.config, ours.labels)
    state = ours.state_dict()
    assert again.state_dict().keys() == state.keys()
    assert all(torch.equal(x, state[name]) and x.is_contiguous() for name, x in again.state_dict().items())
    assert all(p.requires_grad and not p.is_meta for p in again.parameters())
    images = pictures(15, 6)
    torch.testing.assert_close(again(images), ours.eval()(images), atol=0, rtol=0)
    again.save_pretrained(tmp_path / "again")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_transformers_takes_what_only_we_know_for_what_it_is(tmp_path):
    """It reads the file, passes over the drop path, and gives the same at the native size."""
    import transformers

    sizes = {"image_size": SIDE, "patch_size": P, "channels": C, "d_model": 12, "n_heads": 3, "d_ff": 20, "n_layers": 2}
    ours = randomise(ViT(ViTConfig(**sizes, classes=5, drop_path=0.5, resize="dino"))).eval()
    ours.save_pretrained(tmp_path)
    theirs, images = transformers.ViTForImageClassification.from_pretrained(tmp_path).eval(), pictures()
    torch.testing.assert_close(ours(images), said(theirs, images), atol=1e-5, rtol=1e-5)
    assert theirs.config.num_labels == 5
    larger = pictures(24, 24)
    assert (ours(larger) - said(theirs, larger)).abs().max() > 1e-4, "their positions lie elsewhere then"


def test_their_pooler_is_our_hidden_layer_of_any_width(tmp_path):
    import transformers

    sizes = {"image_size": SIDE, "patch_size": P, "channels": C, "d_model": 12, "n_heads": 3, "d_ff": 20, "n_layers": 2}
    ours = randomise(ViT(ViTConfig(**sizes, classes=0, representation_size=7))).eval()
    ours.save_pretrained(tmp_path)
    theirs, images = transformers.ViTModel.from_pretrained(tmp_path).eval(), pictures()
    assert said(theirs, images).shape == (3, 7)
    torch.testing.assert_close(ours(images), said(theirs, images), atol=1e-5, rtol=1e-5)


def test_a_body_of_a_classifier_takes_a_new_head(tmp_path):
    theirs, images = theirs_of("ViTForImageClassification"), pictures()
    theirs.save_pretrained(tmp_path)
    model = ViT.from_pretrained(tmp_path)
    model.replace_head(0)
    torch.testing.assert_close(model(images), theirs.vit(images).last_hidden_state[:, 0], atol=1e-5, rtol=1e-5)
    model.replace_head(2, ["yes", "no"])
    model.save_pretrained(tmp_path / "new")
    assert ViT.from_pretrained(tmp_path / "new").labels == ("yes", "no")


def test_the_configuration_of_the_published_files_is_the_preset():
    """What stands in the config.json of the hub's google/vit-base-patch16-224 and -large-patch16-224, and of DINO's."""
    base = {"model_type": "vit", "attention_probs_dropout_prob": 0.0, "hidden_act": "gelu", "hidden_dropout_prob": 0.0}
    base |= {"hidden_size": 768, "image_size": 224, "intermediate_size": 3072, "layer_norm_eps": 1e-12}
    base |= {"num_attention_heads": 12, "num_channels": 3, "num_hidden_layers": 12, "patch_size": 16, "qkv_bias": True}
    large = base | {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24}
    small = base | {"hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 6}
    huge = base | {"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 16}
    with torch.device("meta"):
        head = {"classifier.weight": torch.empty(1000, 1)}
        pooler = {"pooler.dense.weight": torch.empty(768, 768)}
    assert vit_config(base, head) == ViTConfig.b16(eps=1e-12)
    assert vit_config(base | {"patch_size": 32}, head) == ViTConfig.b32(eps=1e-12)
    assert vit_config(large, head) == ViTConfig.l16(eps=1e-12)
    assert vit_config(huge | {"patch_size": 14}, head) == ViTConfig.h14(eps=1e-12)
    assert vit_config(base, pooler) == ViTConfig.b16(eps=1e-12, classes=0, representation_size=768)
    assert vit_config(small | {"patch_size": 8}, {}) == ViTConfig.s16(patch_size=8, eps=1e-12, classes=0)


# --- what is refused ------------------------------------------------------------------------------------------


def reject(words: str, change=lambda weights: weights, **changes) -> None:
    theirs = theirs_of("ViTForImageClassification")
    ours_of(theirs)  # it is fine as it is
    with pytest.raises(ValueError, match=words):
        from_hugging_face(ViT, theirs.config.to_dict() | changes, change(theirs.state_dict()))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "deit"}, "model_type='deit': a ViT of the course has 'vit'"),
        ({"hidden_act": "gelu_new"}, "hidden_act='gelu_new': .* has 'gelu'"),
        ({"qkv_bias": False}, "qkv_bias=False: .* has True"),
        ({"attention_probs_dropout_prob": 0.1}, r"attention_probs_dropout_prob=0\.1: .* has 0\.0"),
        ({"pooler_act": "relu"}, "pooler_act='relu': .* has 'tanh'"),
        ({"image_size": [12, 24]}, r"image_size=\[12, 24\]: a ViT of the course has squares"),
        ({"patch_size": (3, 2)}, r"patch_size=\[3, 2\]: a ViT of the course has squares"),
        ({"num_attention_heads": 5}, "n_heads=5: must divide d_model=12"),
        ({"num_hidden_layers": 1}, r"the configuration has no place for encoder\.layer\.1\."),
        ({"num_hidden_layers": 3}, r"no weight encoder\.layer\.2\..*, so this is no ViT of the configuration's size"),
        ({"intermediate_size": 21}, r"intermediate\.dense\.weight makes \(20, 12\), the configuration says \(21, 12\)"),
        ({"image_size": 15}, r"position_embeddings makes \(17, 12\), the configuration says \(26, 12\)"),
        ({"num_channels": 3}, r"projection\.weight makes \(12, 2, 3, 3\), the configuration says \(12, 3, 3, 3\)"),
        ({"id2label": {0: "a", 1: "b"}}, r"id2label has 2 labels, classifier\.weight 5 rows: must be as many"),
    ],
)
def test_other_models_are_refused(changes, words):
    reject(words, **changes)


def test_squares_may_be_written_as_two_sides():
    theirs = theirs_of("ViTForImageClassification")
    config = theirs.config.to_dict() | {"image_size": [12, 12], "patch_size": (3, 3)}
    assert from_hugging_face(ViT, config, theirs.state_dict()).config == ours_of(theirs).config


def test_missing_sizes_are_named_and_silence_means_what_theirs_takes():
    config, weights = to_hugging_face(ours_of(theirs_of("ViTForImageClassification", layer_norm_eps=1e-12)))
    for name in ("hidden_size", "image_size", "num_channels"):
        with pytest.raises(ValueError, match=f"no {name} in the configuration: it is not that of a ViT"):
            from_hugging_face(ViT, {n: x for n, x in config.items() if n != name}, weights)
    silent = {n: x for n, x in config.items() if "dropout" not in n and n not in ("layer_norm_eps", "id2label")}
    found = from_hugging_face(ViT, silent, weights)
    assert (found.config.dropout, found.config.eps, found.labels) == (0.0, 1e-12, ())


def test_a_head_that_is_not_there_is_not_made_up():
    without = {"classifier.weight", "classifier.bias"}
    reject(
        r"no weight classifier\.weight, so this is no ViTForImageClassification; its configuration says it is",
        lambda weights: {n: x for n, x in weights.items() if n not in without},
        architectures=["ViTForImageClassification"],
    )
    reject(r"no weight classifier\.bias", lambda w: {n: x for n, x in w.items() if n != "classifier.bias"})


def test_weights_of_no_place_are_refused():
    names = "vit.encoder.layer.0.layer_scale", "vit.layers.2.mlp.fc1.weight", "vit.embeddings.distillation_token"
    for name in (*names, "vit.layernorm.gain", "classifier.gain"):
        words = "the configuration has no place for .*" + re.escape(name.split(".")[-1])
        reject(words, lambda w, n=name: {**w, n: torch.zeros(1)})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pooling": "mean"}, "pooling='mean': a ViT of Hugging Face has a class token, so this has no place there"),
        (
            {"representation_size": 7},
            "representation_size=7: ViTForImageClassification has no hidden layer before its head, so this has no",
        ),
    ],
)
def test_what_theirs_cannot_be_is_not_written(tmp_path, changes, words):
    sizes = {"image_size": SIDE, "patch_size": P, "d_model": 12, "n_heads": 3, "d_ff": 20, "n_layers": 1, "classes": 5}
    with pytest.raises(ValueError, match=words):
        ViT(ViTConfig(**sizes | changes)).save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", KINDS)
def test_the_weights_are_copies(kind):
    theirs = theirs_of(kind)
    before = {name: x.clone() for name, x in theirs.state_dict().items()}
    randomise(ours_of(theirs), seed=9)
    assert all(torch.equal(x, before[name]) for name, x in theirs.state_dict().items())
