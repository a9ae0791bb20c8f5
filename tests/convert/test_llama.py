"""Our Llama beside transformers' Llama, Mistral, Qwen 2 and Qwen 3: all parameters randomised; files both ways."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from coursekit.convert.llama import from_hugging_face, llama_config, their_names, to_hugging_face
from coursekit.decode.generate import generate
from coursekit.models.gpt import gpt_loss
from coursekit.models.llama import Llama, LlamaConfig
from coursekit.nn.rotary import RotaryScaling
from tests.conftest import randomise

V, T = 40, 16
SIZES = {"vocab_size": V, "d_model": 24, "n_heads": 6, "n_kv_heads": 2, "d_ff": 20, "n_layers": 2, "max_length": 64}
SCALING = RotaryScaling(factor=4.0, low=1.0, high=4.0, original=8)
FAMILIES = {
    "llama": {},
    "llama, all heads": {"n_kv_heads": 6},
    "llama, tied and scaled": {"tied": True, "rotary_base": 100.0, "rotary_scaling": SCALING},
    "llama, large heads": {"d_head": 10},
    "mistral": {"window": 5},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True, "d_head": 6, "eps": 1e-6},
}
LENGTHS = {"full": [T] * 3, "padded": [T, 3, 9], "one": [1]}


def config_of(family: str, **changes) -> LlamaConfig:
    return LlamaConfig(**SIZES | FAMILIES[family] | changes)


def ours_of(family: str, **changes) -> Llama:
    model = randomise(Llama(config_of(family, **changes))).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p += 1  # much smaller, and each block says less of the words than the one before
    return model


def theirs_of(folder, ours: Llama):
    """Their model, read from what ours writes."""
    import transformers

    ours.save_pretrained(folder)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager", dtype=torch.float32
    )
    assert not any(info.values()), info
    return model.eval()


def batch(lengths, side: str = "right") -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    lengths, size = torch.tensor(lengths), max(lengths)
    ids, places = torch.randint(V, (len(lengths), size), generator=generator), torch.arange(size)
    return ids, places < lengths[:, None] if side == "right" else places >= size - lengths[:, None]


def logits_of(theirs, ids, mask) -> torch.Tensor:
    places = (mask.long().cumsum(-1) - 1).masked_fill(~mask, 1)
    return theirs(input_ids=ids, attention_mask=mask.long(), position_ids=places).logits


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_transformers(tmp_path, family, side, lengths):
    ours, (ids, mask) = ours_of(family), batch(lengths, side)
    theirs = theirs_of(tmp_path, ours)
    assert theirs.config.model_type == family.split(",")[0]
    found, expected = ours(ids, mask)[mask], logits_of(theirs, ids, mask)[mask]
    assert expected.std() > 0.1, "it says nothing"
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_all_gradients_equal_transformers(tmp_path, family):
    ours, (ids, mask) = ours_of(family), batch(LENGTHS["padded"])
    theirs = theirs_of(tmp_path, ours)
    total, count = gpt_loss(ours, {"ids": ids, "mask": mask})
    (total / count).backward()
    logits = logits_of(theirs, ids, mask)[:, :-1]
    target = ids[:, 1:].masked_fill(~mask[:, 1:], -100)
    F.cross_entropy(logits.flatten(0, 1), target.flatten()).backward()
    with torch.no_grad():
        for p in ours.parameters():
            p.copy_(p.grad)
    _, found = to_hugging_face(ours)  # the gradients by their names
    expected = {name: p.grad for name, p in theirs.named_parameters()}
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        if not name.endswith("k_proj.bias"):  # it shifts all scores of a query alike, where nothing turns it
            assert expected[name].abs().max() > 1e-5, f"{name}: it says nothing"
        torch.testing.assert_close(gradient, expected[name], atol=1e-5, rtol=1e-3, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_equal_transformers_generate(tmp_path, family):
    """Prompts of different lengths, padded on the left; twelve tokens, beyond the window."""
    ours, (prompt, mask) = ours_of(family), batch([6, 1, 4], "left")
    theirs = theirs_of(tmp_path, ours)
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    expected = theirs.generate(prompt, attention_mask=mask.long(), **options)[:, 6:]
    assert torch.equal(generate(ours, prompt, mask, 12, temperature=0), expected)
    assert len(set(expected.flatten().tolist())) > 2, "it says nothing"


# --- files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_of_transformers_is_read(tmp_path, family):
    """As version 5 writes it, whose configuration has other names for the angles."""
    ours, (ids, mask) = ours_of(family), batch(LENGTHS["padded"])
    theirs_of(tmp_path / "ours", ours).save_pretrained(tmp_path / "theirs")
    again = Llama.from_pretrained(tmp_path / "theirs")
    assert not again.training
    assert again.config == config_of(family, d_head=ours.config.head_size)
    torch.testing.assert_close(again(ids, mask), ours(ids, mask))


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_written_comes_back(tmp_path, family):
    ours = ours_of(family)
    ours.save_pretrained(tmp_path)
    again = Llama.from_pretrained(tmp_path)
    state = ours.state_dict()
    assert again.state_dict().keys() == state.keys()
    assert all(torch.equal(x, state[name]) and x.is_contiguous() for name, x in again.state_dict().items())
    assert all(p.requires_grad and not p.is_meta for p in again.parameters())
    again.save_pretrained(tmp_path / "again")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.parametrize("size", ["1KB", "8KB"])
def test_shards_of_transformers_are_read(tmp_path, size):
    ours = ours_of("qwen3")
    theirs_of(tmp_path / "ours", ours).save_pretrained(tmp_path / "theirs", max_shard_size=size)
    assert len(list((tmp_path / "theirs").glob("model-*-of-*.safetensors"))) > 2
    again = Llama.from_pretrained(tmp_path / "theirs").state_dict()
    state = ours.state_dict()
    assert again.keys() == state.keys()
    assert all(torch.equal(weight, state[name]) for name, weight in again.items())


def test_old_files_with_angles_and_with_the_tied_matrix_twice_are_read(tmp_path):
    ours, (ids, mask) = ours_of("llama, tied and scaled"), batch(LENGTHS["padded"])
    ours.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    weights |= {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(2) for i in range(2)}
    save_file(weights | {"lm_head.weight": weights["model.embed_tokens.weight"].clone()}, path)
    torch.testing.assert_close(Llama.from_pretrained(tmp_path)(ids, mask), ours(ids, mask))
    save_file(weights | {"lm_head.weight": weights["model.embed_tokens.weight"] + 1}, path)
    with pytest.raises(ValueError, match=r"lm_head\.weight differs from model\.embed_tokens\.weight, but the config"):
        Llama.from_pretrained(tmp_path)


def test_the_configurations_of_the_published_files_are_the_presets():
    """What stands in the config.json of the hub, as far as it says anything that counts."""
    own = {"hidden_act": "silu", "rms_norm_eps": 1e-05, "attention_bias": False}
    llama2 = own | {"model_type": "llama", "vocab_size": 32_000, "hidden_size": 4096, "num_hidden_layers": 32}
    llama2 |= {"num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 11_008}
    llama2 |= {"max_position_embeddings": 4096, "rope_scaling": None, "tie_word_embeddings": False}
    llama3 = llama2 | {"vocab_size": 128_256, "num_key_value_heads": 8, "intermediate_size": 14_336}
    llama3 |= {"max_position_embeddings": 8192, "rope_theta": 500_000.0}
    scaling = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_type": "llama3"}
    llama32 = llama3 | {"hidden_size": 2048, "num_hidden_layers": 16, "intermediate_size": 8192, "head_dim": 64}
    llama32 |= {"rope_scaling": scaling | {"original_max_position_embeddings": 8192}, "tie_word_embeddings": True}
    llama32 |= {"max_position_embeddings": 131_072}
    mistral = llama2 | {"model_type": "mistral", "num_key_value_heads": 8, "intermediate_size": 14_336}
    mistral |= {"sliding_window": 4096, "max_position_embeddings": 32_768, "rope_theta": 10_000.0}
    smollm2 = llama2 | {"vocab_size": 49_152, "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3}
    smollm2 |= {"intermediate_size": 1536, "num_hidden_layers": 30, "rope_theta": 100_000, "tie_word_embeddings": True}
    smollm2 |= {"max_position_embeddings": 8192}
    assert llama_config(llama2) == LlamaConfig.llama2_7b()
    assert llama_config(llama3) == LlamaConfig.llama3_8b()
    assert llama_config(llama32) == LlamaConfig.llama32_1b(d_head=64)
    assert llama_config(mistral) == LlamaConfig.mistral_7b()
    assert llama_config(smollm2) == LlamaConfig.smollm2_135m()
    assert llama_config(mistral | {"sliding_window": None}).window is None
    qwen2 = llama3 | {"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False}
    assert llama_config(qwen2).window is None
    assert llama_config(qwen2 | {"use_sliding_window": True}).window == 4096
    first = {name: value for name, value in llama2.items() if name != "num_key_value_heads"}  # the first Llama's
    assert llama_config(first).n_kv_heads == 32


# --- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "gpt2"}, "model_type='gpt2': must be one of 'llama', 'mistral', 'qwen2', 'qwen3'"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu': a Llama of the course has 'silu'"),
        ({"mlp_bias": True}, "mlp_bias=True: a Llama of the course has False"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_type='yarn': must be 'default' or 'llama3'"),
        ({"hidden_size": None}, "no hidden_size in the configuration: it is not that of a llama"),
        ({"num_attention_heads": 5, "head_dim": None}, "n_kv_heads=2: must divide n_heads=5"),
        ({"num_hidden_layers": 1}, r"the configuration has no place for model\.layers\.1\."),
        ({"num_hidden_layers": 3}, r"no weight model\.layers\.2\..*, so this is no llama of the configuration's size"),
        ({"intermediate_size": 21}, r"mlp\..*_proj\.weight of \(20, 24\)|down_proj\.weight of \(24, 20\)"),
        ({"model_type": "qwen3"}, r"no weight model\.layers\.0\.self_attn\.q_norm\.weight"),
        ({"model_type": "qwen2"}, r"no weight model\.layers\.0\.self_attn\.q_proj\.bias"),
    ],
)
def test_other_models_are_refused(changes, words):
    config, weights = to_hugging_face(ours_of("llama"))
    assert from_hugging_face(Llama, config, weights).config.n_layers == 2  # it is fine as it is
    with pytest.raises(ValueError, match=words):
        from_hugging_face(Llama, config | changes, weights)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dropout": 0.1}, "dropout=0.1: none of these models has any"),
        ({"qk_norm": True, "qkv_bias": True}, "qk_norm=True, qkv_bias=True, window=None: no model there has all"),
        ({"qk_norm": True, "window": 3}, "window=3: no model there has all of it"),
    ],
)
def test_a_model_that_has_no_place_there_is_not_written(tmp_path, changes, words):
    with pytest.raises(ValueError, match=words):
        Llama(config_of("llama", **changes)).save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())


def test_every_weight_has_a_name_of_its_own():
    names = [name for theirs in their_names(ours_of("qwen3")).values() for name in theirs]
    assert len(set(names)) == len(names)
