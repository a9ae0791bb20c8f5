"""Our Transformer beside Marian of transformers: all parameters randomised, biases, norms and logit bias included."""

import json

import pytest
import torch

from coursekit.convert.marian import from_marian, load_marian
from coursekit.decode.translate import greedy
from tests.conftest import randomise

V, PAD, EOS = 40, 39, 0


def marian(seed: int = 0, std: float = 0.3, **changes):
    from transformers import MarianConfig, MarianMTModel

    settings = {
        "activation_function": "swish",
        "scale_embedding": True,
        **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": 20 for side in ("encoder", "decoder")},
    }
    config = MarianConfig(
        vocab_size=V,
        d_model=16,
        max_position_embeddings=32,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,
        forced_eos_token_id=None,
        **settings | changes,
    )
    model = MarianMTModel(config).eval()
    positions = {name: p.clone() for name, p in model.named_parameters() if "embed_positions" in name}
    randomise(model, seed, std)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name in positions:
                p.copy_(positions[name])  # a fixed table
    model.final_logits_bias.copy_(torch.randn(1, V, generator=torch.Generator().manual_seed(seed)))
    return model


def batch(seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(1, V - 1, (5, 9), generator=generator)
    lengths = torch.tensor([9, 1, 4, 7, 9])
    mask = torch.arange(9) < lengths[:, None]
    target = torch.randint(1, V - 1, (5, 6), generator=generator)
    return source.masked_fill(~mask, PAD), mask, target


@pytest.mark.parametrize("activation", ["swish", "relu", "gelu"])
def test_logits_and_gradients_equal_marian(activation):
    theirs = marian(activation_function=activation)
    ours = from_marian(theirs.config.to_dict(), theirs.state_dict())
    source, mask, target = batch()
    inputs = torch.cat([torch.full((5, 1), PAD), target[:, :-1]], dim=1)
    expected = theirs(input_ids=source, attention_mask=mask.long(), decoder_input_ids=inputs).logits
    found = ours(source, mask, target)
    assert expected.std() > 1  # it says something
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    (expected * weights).mean().backward()
    (found * weights).mean().backward()
    grad = theirs.model.shared.weight.grad
    # theirs lets no gradient through the embedding of padding, which is also its start symbol
    torch.testing.assert_close(ours.embedding.weight.grad[:PAD], grad[:PAD], atol=1e-5, rtol=1e-4)
    layer = theirs.model.decoder.layers[1].encoder_attn
    projections = torch.cat([layer.q_proj.weight.grad, layer.k_proj.weight.grad, layer.v_proj.weight.grad])
    torch.testing.assert_close(ours.decoder[1].cross_attention.qkv.weight.grad, projections, atol=1e-5, rtol=1e-4)


def test_a_folder_is_read_and_decodes_the_same(tmp_path):
    source, mask, _ = batch()
    seen = set()
    for seed in range(8):
        theirs = marian(seed, std=1.0)
        with torch.no_grad():  # so that the output depends on the source and does not only repeat itself
            for name, p in theirs.named_parameters():
                if "layer_norm" in name:
                    p.copy_(1 + p if "weight" in name else p / 10)
        theirs.save_pretrained(tmp_path / str(seed))
        # the published models forbid their padding, which is also their start symbol
        settings = {"num_beams": 1, "do_sample": False, "max_new_tokens": 12, "bad_words_ids": [[PAD]]}
        expected = theirs.generate(input_ids=source, attention_mask=mask.long(), **settings)[:, 1:]
        found = greedy(load_marian(tmp_path / str(seed)), source, mask, max_length=12)
        assert torch.equal(found, expected)
        seen |= {tuple(row) for row in found.tolist()}
    assert len(seen) > 16  # the outputs depend on weights and source


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scale_embedding": False}, "scale_embedding=False: a Transformer of the course needs True"),
        ({"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings=False: .* needs True"),
        ({"model_type": "bart"}, "model_type='bart': .* needs 'marian'"),
        ({"decoder_layers": 3}, "decoder_layers=3: .* needs 2"),
        ({"decoder_attention_heads": 2}, "decoder_attention_heads=2: .* needs 4"),
        ({"decoder_ffn_dim": 24}, "decoder_ffn_dim=24: .* needs 20"),
        ({"activation_function": "tanh"}, "activation_function='tanh': must be one of swish"),
    ],
)
def test_other_models_are_refused(changes, words):
    theirs = marian()
    from_marian(theirs.config.to_dict(), theirs.state_dict())
    with pytest.raises(ValueError, match=words):
        from_marian(theirs.config.to_dict() | changes, theirs.state_dict())


def test_a_folder_without_the_files_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no config\.json"):
        load_marian(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({}))
    with pytest.raises(ValueError, match=r"no model\.safetensors"):
        load_marian(tmp_path)
