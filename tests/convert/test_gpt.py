"""Our GPT beside transformers': all parameters randomised; files read and written both ways."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

from coursekit.convert.gpt import from_hugging_face, gpt_config, their_names, to_hugging_face
from coursekit.models.gpt import GPT, GPTConfig, gpt_loss
from tests.conftest import randomise

V, T = 40, 16
# what tells the presets apart, small: heads of several numbers, an odd number of them, a few or many blocks
FAMILIES = {
    "gpt1": (GPTConfig.gpt1, {"d_model": 12, "n_heads": 3, "n_layers": 2}),
    "gpt2": (GPTConfig.gpt2, {"d_model": 12, "n_heads": 3, "n_layers": 2}),
    "gpt2_medium": (GPTConfig.gpt2_medium, {"d_model": 16, "n_heads": 4, "n_layers": 4}),
    "gpt2_large": (GPTConfig.gpt2_large, {"d_model": 20, "n_heads": 5, "n_layers": 6}),
    "gpt2_xl": (GPTConfig.gpt2_xl, {"d_model": 20, "n_heads": 5, "n_layers": 8}),
    "gpt3": (GPTConfig.gpt3, {"d_model": 24, "n_heads": 3, "n_layers": 3}),
}
LENGTHS = {"full": [T] * 4, "padded": [T, 1, 7, 12], "short": [2, 1, 3], "one": [1]}
KINDS = ["gpt1", "gpt2"]


def config_of(family: str, **changes) -> GPTConfig:
    preset, sizes = FAMILIES[family]
    return preset(**{"vocab_size": V, "max_length": T, **sizes, "d_ff": 4 * sizes["d_model"]} | changes)


def theirs_of(family: str, seed: int = 0, **changes):
    """Their model in the sizes of one of ours, by their own names."""
    import transformers

    c = config_of(family)
    sizes = {"vocab_size": V, "n_embd": c.d_model, "n_head": c.n_heads, "n_layer": c.n_layers, "n_positions": T}
    sizes |= dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), c.dropout) | changes
    if family == "gpt1":
        model = transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(**sizes))
    else:
        sizes |= {"bos_token_id": None, "eos_token_id": None, "attn_implementation": "eager"}
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    randomise(model, seed).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "ln_" in name and name.endswith("weight"):
                p += 1  # much smaller, and each block says less of the words than the one before
    return model


def ours_of(theirs) -> GPT:
    return from_hugging_face(GPT, theirs.config.to_dict(), theirs.state_dict())


def batch(lengths, side: str = "right", seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths, size = torch.tensor(lengths), max(lengths)
    ids, places = torch.randint(V, (len(lengths), size), generator=generator), torch.arange(size)
    mask = places < lengths[:, None] if side == "right" else places >= size - lengths[:, None]
    return ids, mask


def places_of(mask: torch.Tensor) -> torch.Tensor:
    """Positions as transformers' ``generate`` counts them: real tokens only."""
    return (mask.long().cumsum(-1) - 1).masked_fill(~mask, 1)


def logits_of(theirs, ids, mask) -> torch.Tensor:
    return theirs(input_ids=ids, attention_mask=mask.long(), position_ids=places_of(mask)).logits


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_transformers(family, side, lengths):
    theirs, (ids, mask) = theirs_of(family), batch(lengths, side)
    ours = ours_of(theirs)
    assert ours.config == config_of(family)
    found, expected = ours(ids, mask)[mask], logits_of(theirs, ids, mask)[mask]
    assert expected.std() > 0.1, "it says nothing"
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    found, expected = ours.double()(ids, mask)[mask], logits_of(theirs.double(), ids, mask)[mask]
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)
    if lengths == LENGTHS["full"]:
        torch.testing.assert_close(ours(ids), theirs(ids).logits, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_all_gradients_equal_transformers(family):
    """The loss is theirs too, where they leave out what is labelled -100: padding, and a prompt."""
    theirs, (ids, mask) = theirs_of(family).double(), batch(LENGTHS["padded"])
    ours = ours_of(theirs.float()).double()
    theirs.double()
    learned = torch.arange(T) >= torch.tensor([[5], [0], [1], [3]])
    total, count = gpt_loss(ours, {"ids": ids, "mask": mask, "loss_mask": learned})
    labels = ids.masked_fill(~(mask & learned), -100)
    loss = theirs(ids, attention_mask=mask.long(), position_ids=places_of(mask), labels=labels).loss
    torch.testing.assert_close((total / count).double(), loss.double(), atol=1e-5, rtol=1e-5)

    # their loss is in float32; in float64 that of the same logits, of which nothing is rounded
    weights = torch.randn(int(mask.sum()), V, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for model, logits in ((ours, ours(ids, mask)), (theirs, logits_of(theirs, ids, mask))):
        model.zero_grad()
        (logits[mask] * weights).sum().backward()
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(p.grad)
    _, found = to_hugging_face(ours)  # the gradients by their names
    expected = dict(theirs.named_parameters())
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        assert expected[name].abs().max() > 1e-3, f"{name}: it says nothing"
        torch.testing.assert_close(gradient, expected[name], atol=1e-9, rtol=1e-9, msg=lambda m, n=name: f"{n}: {m}")


@settings(max_examples=25)
@given(
    st.sampled_from(KINDS),
    st.integers(0, 10_000),
    st.lists(st.integers(1, T), min_size=1, max_size=5),
    st.sampled_from(["left", "right"]),
)
def test_logits_equal_transformers_for_any_lengths(family, seed, lengths, side):
    theirs, (ids, mask) = theirs_of(family, seed % 5), batch(lengths, side, seed)
    found, expected = ours_of(theirs)(ids, mask)[mask], logits_of(theirs, ids, mask)[mask]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("cached", [False, True], ids=["", "cached"])
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_equal_transformers_generate(family, cached):
    """Prompts of different lengths, padded on the left as they want it; ten tokens."""
    theirs, (prompt, mask) = theirs_of(family, seed=8), batch([6, 1, 4], "left")
    ours = ours_of(theirs)
    settings = {"max_new_tokens": 10, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    if family == "gpt1":  # their generate does not give it the positions: text by text
        texts = [row[real][None] for row, real in zip(prompt, mask)]
        rows = [theirs.generate(text, attention_mask=torch.ones_like(text), **settings) for text in texts]
        expected = torch.cat([row[:, -10:] for row in rows])
    else:
        expected = theirs.generate(prompt, attention_mask=mask.long(), **settings)[:, 6:]
    ids, fresh, caches = prompt, prompt, ours.new_caches(T) if cached else None
    for _ in range(10):
        logits = ours(fresh if cached else ids, mask, caches)[:, -1]
        fresh = logits.argmax(dim=-1, keepdim=True)
        ids, mask = torch.cat([ids, fresh], dim=1), F.pad(mask, (0, 1), value=True)
    assert torch.equal(ids[:, 6:], expected)
    assert len(set(expected.flatten().tolist())) > 2, "it says nothing"


# --- files ----------------------------------------------------------------------------------------------------


def rewrite(folder, change) -> None:
    """Change the names and tensors of a saved model."""
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


def bare(weights):
    return {name.removeprefix("transformer."): x for name, x in weights.items()}


def with_output(weights):
    embedding = next(x for name, x in weights.items() if "wte" in name or "tokens_embed" in name)
    return {**weights, "lm_head.weight": embedding.clone()}


WAYS = {
    "as transformers writes": lambda weights: weights,
    "without transformer.": bare,
    "with the tied matrix twice": with_output,
    "old, with masks and what else lies about": lambda weights: {
        **bare(weights),
        **{f"h.{i}.attn.bias": torch.ones(1, 1, T, T).tril() for i in range(2)},
        **{f"h.{i}.attn.masked_bias": torch.tensor(-1e4) for i in range(2)},
        "position_ids": torch.arange(T),
        "multiple_choice_head.summary.weight": torch.zeros(1, 12),
    },
    "in half the precision": lambda weights: {name: x.bfloat16() for name, x in weights.items()},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", KINDS)
def test_a_folder_of_transformers_is_read(tmp_path, family, way):
    theirs, (ids, mask) = theirs_of(family), batch(LENGTHS["padded"])
    theirs.save_pretrained(tmp_path)
    rewrite(tmp_path, WAYS[way])
    ours = GPT.from_pretrained(tmp_path)
    assert not ours.training
    if "half" in way:
        assert all(p.dtype == torch.float32 for p in ours.parameters())
        with torch.no_grad():
            for p in theirs.parameters():
                p.copy_(p.bfloat16())
    torch.testing.assert_close(ours(ids, mask)[mask], logits_of(theirs, ids, mask)[mask], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_reads_what_is_written(tmp_path, family):
    theirs = theirs_of(family)
    ours_of(theirs).save_pretrained(str(tmp_path / "new" / "folder"))
    again, info = type(theirs).from_pretrained(tmp_path / "new" / "folder", output_loading_info=True)
    assert not any(info.values()), info
    expected = theirs.state_dict()
    assert again.state_dict().keys() == expected.keys()
    assert all(torch.equal(x, expected[name]) for name, x in again.state_dict().items())
    # n_inner: theirs says nothing where it is 4 n_embd
    different = {"transformers_version", "dtype", "architectures", "_name_or_path", "_attn_implementation", "n_inner"}
    own, other = again.config.to_dict(), theirs.config.to_dict()
    assert not [n for n in other if n not in different and own[n] != other[n] and not n.startswith("attn_impl")]
    assert again.config.architectures == [type(theirs).__name__]
    ids, mask = batch(LENGTHS["padded"])
    torch.testing.assert_close(logits_of(again, ids, mask), logits_of(theirs, ids, mask), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("vocab_size", [V, 50_257])
def test_the_end_of_a_text_is_gpt2s_where_the_vocabulary_is(vocab_size):
    """Else theirs would take 50,256 for the end, which is no token."""
    config, _ = to_hugging_face(GPT(config_of("gpt2", vocab_size=vocab_size)))
    assert config["eos_token_id"] == config["bos_token_id"] == (50_256 if vocab_size > V else None)


@pytest.mark.parametrize(
    ("family", "changes"), [*((family, {}) for family in FAMILIES), ("gpt1", {"dropout": 0.25}), ("gpt2", {"d_ff": 21})]
)
def test_what_is_written_comes_back(tmp_path, family, changes):
    ours = randomise(GPT(config_of(family, **changes)))
    ours.save_pretrained(tmp_path)
    again = GPT.from_pretrained(str(tmp_path))
    assert again.config == ours.config
    state = ours.state_dict()
    assert again.state_dict().keys() == state.keys()
    assert all(torch.equal(x, state[name]) and x.is_contiguous() for name, x in again.state_dict().items())
    assert all(p.requires_grad and not p.is_meta for p in again.parameters())
    again.save_pretrained(tmp_path / "again")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_the_configuration_of_the_published_file_is_the_preset():
    """What stands in the config.json of the hub's gpt2 and openai-gpt, as far as it says anything."""
    gpt2 = {"model_type": "gpt2", "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05, "vocab_size": 50_257}
    gpt2 |= {"n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1}
    gpt1 = {"model_type": "openai-gpt", "afn": "gelu", "layer_norm_epsilon": 1e-05, "vocab_size": 40_478}
    gpt1 |= {"n_ctx": 512, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 512, "attn_pdrop": 0.1}
    assert gpt_config(gpt2) == GPTConfig.gpt2()
    assert gpt_config(gpt1) == GPTConfig.gpt1()
    for name, (d_model, n_layers, n_heads) in {
        "gpt2_medium": (1024, 24, 16),
        "gpt2_large": (1280, 36, 20),
        "gpt2_xl": (1600, 48, 25),
    }.items():
        sizes = {"n_embd": d_model, "n_layer": n_layers, "n_head": n_heads}
        assert gpt_config(gpt2 | sizes) == getattr(GPTConfig, name)()


# --- what is refused ------------------------------------------------------------------------------------------


def reject(family: str, words: str, change=lambda weights: weights, **changes) -> None:
    theirs = theirs_of(family)
    ours_of(theirs)  # it is fine as it is
    with pytest.raises(ValueError, match=words):
        from_hugging_face(GPT, theirs.config.to_dict() | changes, change(theirs.state_dict()))


@pytest.mark.parametrize(
    ("family", "changes", "words"),
    [
        ("gpt2", {"model_type": "bert"}, "model_type='bert': must be one of 'gpt2', 'openai-gpt'"),
        ("gpt2", {"model_type": None}, "model_type=None: must be one of"),
        ("gpt2", {"activation_function": "gelu"}, "activation_function='gelu': a GPT of the course has 'gelu_new'"),
        ("gpt1", {"afn": "relu"}, "afn='relu': a GPT of the course has 'gelu'"),
        ("gpt2", {"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon=1e-06: .* has 1e-05"),
        ("gpt1", {"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon=1e-06: .* has 1e-05"),
        ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights=False: .* has True"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True: .* has False"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention=True: .* has False"),
        ("gpt2", {"tie_word_embeddings": False}, "tie_word_embeddings=False: .* has True"),
        ("gpt2", {"attn_pdrop": 0.2}, r"embd_pdrop=0\.1, attn_pdrop=0\.2, resid_pdrop=0\.1: .* has one dropout"),
        ("gpt2", {"n_head": 5}, "n_heads=5: must divide d_model=12"),
        ("gpt2", {"n_layer": 1}, r"the configuration has no place for h\.1\."),
        ("gpt2", {"n_layer": 3}, r"no weight h\.2\..*, so this is no gpt2 of the configuration's size"),
        ("gpt1", {"n_layer": 3}, r"no weight h\.2\..*, so this is no openai-gpt of the configuration's size"),
        ("gpt2", {"n_inner": 21}, r"mlp\.c_fc\.weight makes \(48, 12\), the configuration says \(21, 12\)"),
        ("gpt1", {"n_positions": 9}, r"positions_embed\.weight makes \(16, 12\), the configuration says \(9, 12\)"),
    ],
)
def test_other_models_are_refused(family, changes, words):
    reject(family, words, **changes)


def test_missing_sizes_are_named():
    config, weights = to_hugging_face(GPT(config_of("gpt2")))
    with pytest.raises(ValueError, match="no n_embd in the configuration: it is not that of a GPT"):
        from_hugging_face(GPT, {name: x for name, x in config.items() if name != "n_embd"}, weights)
    silent = {name: x for name, x in config.items() if "pdrop" not in name and name != "n_inner"}
    assert from_hugging_face(GPT, silent, weights).config == config_of("gpt2")


@pytest.mark.parametrize("family", KINDS)
def test_an_output_matrix_of_its_own_is_refused(family):
    name = "tokens_embed" if family == "gpt1" else "wte"
    words = f"lm_head.weight differs from {name}.weight: a GPT of the course has them in one"
    reject(family, words, lambda weights: {**weights, "lm_head.weight": weights["lm_head.weight"] + 1})


def test_weights_of_no_place_are_refused():
    for name in ("h.0.crossattention.c_attn.weight", "h.0.attn.q_attn.weight", "ln_f.gain", "h.2.ln_1.weight"):
        reject("gpt2", f"the configuration has no place for {name}", lambda w, n=name: {**w, n: torch.zeros(1)})


def test_a_gpt1_of_another_width_has_no_place_there(tmp_path):
    words = "d_ff=21: an openai-gpt has 4 d_model = 48, so this one has no place there"
    with pytest.raises(ValueError, match=words):
        GPT(config_of("gpt1", d_ff=21)).save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("family", KINDS)
def test_the_weights_are_copies(family):
    theirs = theirs_of(family)
    before = {name: x.clone() for name, x in theirs.state_dict().items()}
    randomise(ours_of(theirs), seed=9)
    assert all(torch.equal(x, before[name]) for name, x in theirs.state_dict().items())


def test_a_weight_that_has_no_name_there_is_named():
    model = GPT(GPTConfig(V, 16, n_heads=2, d_ff=32, n_layers=1, max_length=8))
    model.blocks[0].gate = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"blocks\.0\.gate\.weight has no name in Hugging Face's layout"):
        their_names(model)
