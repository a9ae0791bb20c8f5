"""Our BERT beside transformers': all parameters randomised; files read and written both ways."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from coursekit.convert.bert import from_hugging_face, to_hugging_face
from coursekit.models.bert import (
    Bert,
    BertConfig,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from tests.conftest import randomise

V, T = 40, 16
SIZES = {"vocab_size": V, "hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 20}
LABELS = ["B-PERSON", "I-PERSON", "O"]
HEADS = [BertForPreTraining, BertForSequenceClassification, BertForTokenClassification, BertForQuestionAnswering]
KINDS = [Bert, *HEADS]


def labelled(kind) -> bool:
    return kind in (BertForSequenceClassification, BertForTokenClassification)


def theirs_of(kind, seed: int = 0, **changes):
    import transformers

    config = SIZES | {"max_position_embeddings": T, "attn_implementation": "eager"} | changes
    if labelled(kind):
        config |= {"id2label": dict(enumerate(LABELS)), "label2id": {label: i for i, label in enumerate(LABELS)}}
    name = "BertModel" if kind is Bert else kind.__name__
    model = randomise(getattr(transformers, name)(transformers.BertConfig(**config)), seed).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("LayerNorm.weight"):
                p += 1  # much smaller, and each block says less of the words than the one before
    return model


def ours_of(kind, theirs):
    return from_hugging_face(kind, theirs.config.to_dict(), theirs.state_dict())


def batch(lengths, pair: bool = True, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    lengths, size = torch.tensor(lengths), max(lengths)
    ids = torch.randint(1, V, (len(lengths), size), generator=generator)
    mask = torch.arange(size) < lengths[:, None]
    first = torch.randint(0, size, (len(lengths), 1), generator=generator)
    return ids.masked_fill(~mask, 0), mask, (torch.arange(size) > first).long() * pair * mask


def both(ours, theirs, ids, mask, segments) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What ours and theirs find, pair by pair: padding left out."""
    found = ours(ids, mask, segments)
    expected = theirs(input_ids=ids, attention_mask=mask.long(), token_type_ids=segments)
    if isinstance(ours, Bert):
        found, expected = (found, ours.pool(found, mask)), (expected.last_hidden_state, expected.pooler_output)
    elif isinstance(ours, BertForPreTraining):
        expected = expected.prediction_logits, expected.seq_relationship_logits
    elif isinstance(ours, BertForQuestionAnswering):
        expected = expected.start_logits, expected.end_logits
    else:
        found, expected = (found,), (expected.logits,)
    return [(a[mask], b[mask]) if b.shape[:2] == mask.shape else (a, b) for a, b in zip(found, expected)]


LENGTHS = {"full": [T] * 4, "padded": [T, 1, 7, 12], "short": [2, 1, 3], "one": [1]}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("pair", [False, True], ids=["text", "pair"])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_all_gradients_equal_transformers(kind, pair, lengths):
    """The pair under BertForSequenceClassification is the fourth task of figure 4: the same class, two segments."""
    theirs = theirs_of(kind)
    ours = ours_of(kind, theirs)
    found = both(ours, theirs, *batch(lengths, pair))
    losses = torch.zeros(2)
    for i, (a, b) in enumerate(found):
        assert lengths == [1] or b.std() > 0.1, "it says nothing"
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
        weights = torch.randn(b.shape, generator=torch.Generator().manual_seed(i))
        losses = losses + torch.stack([(x * weights).sum() / b.numel() for x in (a, b)])
    losses.sum().backward()
    with torch.no_grad():
        for model in (ours, theirs):
            for p in model.parameters():
                p.copy_(torch.zeros_like(p) if p.grad is None else p.grad)
    _, found = to_hugging_face(ours)  # the gradients by their names
    expected = theirs.state_dict()
    assert len(found) >= len(list(theirs.parameters())) > 30
    nonzero = 0
    for name, gradient in found.items():
        if name.endswith("word_embeddings.weight") and kind is not BertForPreTraining:
            assert (expected[name][0] == 0).all()  # theirs lets none through to padding, and none is real here
            gradient = gradient.clone()
        torch.testing.assert_close(gradient, expected[name], atol=1e-5, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}")
        nonzero += bool(gradient.abs().max() > 1e-3)
    assert nonzero > 25 or lengths == [1]


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.lists(st.integers(1, T), min_size=1, max_size=5))
def test_logits_equal_transformers_for_any_lengths(seed, lengths):
    theirs = theirs_of(BertForPreTraining, seed % 5)
    for a, b in both(ours_of(BertForPreTraining, theirs), theirs, *batch(lengths, seed=seed)):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_the_hidden_states_are_theirs():
    theirs = theirs_of(Bert)
    ids, mask, segments = batch(LENGTHS["padded"])
    found = ours_of(Bert, theirs).hidden_states(ids, mask, segments)
    settings = {"attention_mask": mask.long(), "token_type_ids": segments, "output_hidden_states": True}
    expected = theirs(ids, **settings).hidden_states
    assert len(found) == len(expected) == 3
    for a, b in zip(found, expected):
        torch.testing.assert_close(a[mask], b[mask], atol=1e-5, rtol=1e-5)


# --- files ----------------------------------------------------------------------------------------------------


def rewrite(folder, change) -> None:
    """Change the names and tensors of a saved model."""
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


def google(name: str) -> str:
    """A name as the converted checkpoints of Google have it."""
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


WAYS = {
    "as transformers writes": lambda weights: weights,
    "gamma and beta": lambda weights: {google(name): x for name, x in weights.items()},
    "without bert.": lambda weights: {name.removeprefix("bert."): x for name, x in weights.items()},
    "old, without bert., with what else lies about": lambda weights: {
        **{google(name).removeprefix("bert."): x for name, x in weights.items()},
        "embeddings.position_ids": torch.arange(T)[None],
        "something.else": torch.zeros(1),
    },
    "in half the precision": lambda weights: {name: x.bfloat16() for name, x in weights.items()},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_transformers_is_read(tmp_path, kind, way):
    theirs = theirs_of(kind)
    theirs.save_pretrained(tmp_path)
    rewrite(tmp_path, WAYS[way])
    ours = kind.from_pretrained(tmp_path)
    assert not ours.training
    if labelled(kind):
        assert ours.labels == tuple(LABELS)
    if "half" in way:
        assert all(p.dtype == torch.float32 for p in ours.parameters())
        with torch.no_grad():
            for p in theirs.parameters():
                p.copy_(p.bfloat16())
    for a, b in both(ours, theirs, *batch(LENGTHS["padded"])):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_reads_what_is_written(tmp_path, kind):
    theirs = theirs_of(kind)
    ours_of(kind, theirs).save_pretrained(str(tmp_path / "new" / "folder"))
    again, info = type(theirs).from_pretrained(tmp_path / "new" / "folder", output_loading_info=True)
    assert not any(info.values()), info
    expected = theirs.state_dict()
    assert again.state_dict().keys() == expected.keys()
    assert all(torch.equal(x, expected[name]) for name, x in again.state_dict().items())
    different = {"transformers_version", "dtype", "architectures", "_name_or_path", "_attn_implementation"}
    own, other = again.config.to_dict(), theirs.config.to_dict()
    assert not [n for n in other if n not in different and own[n] != other[n] and not n.startswith("attn")]
    assert again.config.architectures == [type(theirs).__name__]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_comes_back(tmp_path, kind):
    bert = Bert(BertConfig(V, 12, 3, 20, 2, max_length=T, dropout=0.25))
    ours = randomise(bert if kind is Bert else kind(bert, LABELS) if labelled(kind) else kind(bert))
    ours.save_pretrained(tmp_path)
    again = kind.from_pretrained(str(tmp_path))
    assert (again if kind is Bert else again.bert).config == bert.config
    assert getattr(again, "labels", None) == getattr(ours, "labels", None)
    state = ours.state_dict()
    dropped = {name for name in state if name not in again.state_dict()}
    unused = kind in (BertForTokenClassification, BertForQuestionAnswering)
    assert dropped == ({"bert.pooler.weight", "bert.pooler.bias"} if unused else set())
    assert all(torch.equal(x, state[name]) for name, x in again.state_dict().items())
    assert all(p.requires_grad and not p.is_meta for p in again.parameters())
    again.save_pretrained(tmp_path / "again")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_a_body_comes_out_of_any_bert_and_takes_a_new_head(tmp_path):
    for kind in HEADS:
        theirs = theirs_of(kind)
        theirs.save_pretrained(tmp_path / kind.__name__)
        body = Bert.from_pretrained(tmp_path / kind.__name__)
        ids, mask, segments = batch(LENGTHS["padded"])
        expected = theirs.bert(ids, mask.long(), segments).last_hidden_state
        torch.testing.assert_close(body(ids, mask, segments)[mask], expected[mask], atol=1e-5, rtol=1e-5)
        assert (body.pooler is None) == (kind in (BertForTokenClassification, BertForQuestionAnswering))
        model = BertForTokenClassification(body, LABELS)
        assert model(ids, mask, segments).shape == (4, T, 3)


# --- what is refused ------------------------------------------------------------------------------------------


def reject(kind, words: str, change=lambda weights: weights, of=None, **changes) -> None:
    theirs = theirs_of(of or kind)
    ours_of(of or kind, theirs)  # it is fine as it is
    with pytest.raises(ValueError, match=words):
        from_hugging_face(kind, theirs.config.to_dict() | changes, change(theirs.state_dict()))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "roberta"}, "model_type='roberta': a Bert of the course has 'bert'"),
        ({"hidden_act": "relu"}, "hidden_act='relu': .* has 'gelu'"),
        ({"hidden_act": "gelu_new"}, "hidden_act='gelu_new': .* has 'gelu'"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps=1e-05: .* has 1e-12"),
        ({"type_vocab_size": 3}, "type_vocab_size=3: .* has 2"),
        ({"is_decoder": True}, "is_decoder=True: .* has False"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=False: .* has True"),
        ({"attention_probs_dropout_prob": 0.2}, r"attention_probs_dropout_prob=0\.2: .* one dropout, 0\.1 here"),
        ({"num_attention_heads": 5}, "n_heads=5: must divide d_model=12"),
        ({"num_hidden_layers": 1}, r"the configuration has no place for encoder\.layer\.1"),
        ({"num_hidden_layers": 3}, r"no weight encoder\.layer\.2\..*, so this is no BertForPreTraining$"),
        (
            {"intermediate_size": 21},
            r"layer\.0\.intermediate.*weight makes \(20, 12\), the configuration says \(21, 12\)",
        ),
    ],
)
def test_other_models_are_refused(changes, words):
    reject(BertForPreTraining, words, **changes)


def test_missing_sizes_are_named():
    with pytest.raises(ValueError, match="no hidden_size in the configuration: it is not that of a BERT"):
        from_hugging_face(Bert, {"model_type": "bert", "vocab_size": 9}, {})
    config, weights = to_hugging_face(Bert(BertConfig(V, 12, 3, 20, 2, max_length=T)))
    del config["hidden_dropout_prob"], config["attention_probs_dropout_prob"]  # Google's first files have both
    assert from_hugging_face(Bert, config, weights).config.dropout == 0.1


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_that_is_not_there_is_not_made_up(kind):
    """A random head would answer, and nobody would notice."""
    labels = ", labels" if labelled(kind) else ""
    words = rf"no weight .*; for a new head on its body: {kind.__name__}\(Bert.from_pretrained\(...\){labels}\)"
    reject(kind, words, of=Bert)


def test_a_body_without_its_pooler_is_no_classifier():
    words = r"no weight pooler\.dense\.weight, so this is no BertForSequenceClassification"
    without = BertForTokenClassification
    reject(BertForSequenceClassification, words, of=without)


def test_the_weights_are_copies():
    theirs = theirs_of(Bert)
    before = {name: x.clone() for name, x in theirs.state_dict().items()}
    randomise(ours_of(Bert, theirs), seed=9)
    assert all(torch.equal(x, before[name]) for name, x in theirs.state_dict().items())


def test_a_decoder_of_its_own_is_refused():
    for name in ("weight", "bias"):
        key = f"cls.predictions.decoder.{name}"
        reject(BertForPreTraining, f"{key} differs from", lambda w, key=key: {**w, key: w[key] + 1})
