"""Every objective of the course with a small model of each kind, and a batch for it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from coursekit.data.pretraining import places_of
from coursekit.models import (
    bert,
    dino,
    dpo,
    gpt,
    grpo,
    llama,
    mae,
    nnlm,
    patchtst,
    ppo,
    reward,
    seq2seq,
    sit,
    transformer,
    vit,
)
from coursekit.models.baselines.cnn import CNN, CNNConfig
from coursekit.models.baselines.dlinear import DLinear, DLinearConfig
from coursekit.models.baselines.encoder_decoder_forecaster import EncoderDecoderForecaster, teacher_forcing_loss
from coursekit.models.baselines.lstm_forecaster import LSTMForecaster, LSTMForecasterConfig
from coursekit.models.induction import AttentionOnly, AttentionOnlyConfig
from coursekit.models.rnn_lm import RNNLM, RNNLMConfig, Streams, tbptt_objective

B, T, V = 4, 10, 30
VIT = partial(vit.ViTConfig, image_size=16, patch_size=4, d_model=16, n_heads=2, d_ff=32, n_layers=2)
PATCHES = patchtst.PatchTSTConfig(24, patch_size=8, stride=4, d_model=16, n_heads=2, d_ff=32, n_layers=2, dropout=0.1)
GPT = gpt.GPTConfig(V, 16, n_heads=2, d_ff=32, n_layers=2, max_length=T, dropout=0.1)
LLAMA = llama.LlamaConfig(V, 16, n_heads=4, n_kv_heads=2, d_ff=32, n_layers=2, max_length=T)
SCHEDULE = {"steps": 100, "teacher_temperature_warmup": 10, "freeze_last_layer": 1}
DINO = dino.DINOConfig(VIT(classes=0, drop_path=0.1, resize="dino"), 32, 16, out_dim=20, **SCHEDULE)


def body(pooler: bool = True) -> bert.Bert:
    return bert.Bert(bert.BertConfig(V, 16, n_heads=2, d_ff=32, n_layers=2, max_length=T, dropout=0.1), pooler)


def ids(*shape: int) -> Tensor:
    return torch.randint(3, V, shape)


def real(length: int = T) -> Tensor:
    """(B, T), True where a token is real: the texts are 4, 5, 6, ... tokens long."""
    return torch.arange(length) < torch.arange(4, 4 + B)[:, None]


def texts(**more: Tensor) -> dict[str, Tensor]:
    return {"ids": ids(B, T), "mask": real(), "segments": torch.zeros(B, T, dtype=torch.long), **more}


def pairs() -> dict[str, Tensor]:
    return {"source": ids(B, T), "source_mask": real(), "target": ids(B, 8), "target_mask": real(8)}


def images(side: int = 16, **more: Tensor) -> dict[str, Tensor]:
    return {"images": torch.rand(B, 3, side, side), **more}


def series(**more: Tensor) -> dict[str, Tensor]:
    target = torch.rand(B, 6, 2)
    target[0, 1] = torch.nan
    return {"history": torch.rand(B, 24, 2), "target": target}


def masked() -> dict[str, Tensor]:
    masked = real() & (torch.rand(B, T) < 0.3)
    return texts(masked=masked, places=places_of(masked), target=ids(B, T), labels=torch.arange(B) % 2)


def streams() -> tuple:
    supply = Streams([ids(7 + n).tolist() for n in range(6)], B, length=5)
    return RNNLM(RNNLMConfig(V, embed_size=8, hidden_size=16)), tbptt_objective(supply), lambda: next(supply)


def two_views() -> dict[str, Tensor]:
    views = torch.rand(B, 2, 3, 16, 16)
    masks = torch.rand(B, 2, 16, 16) < 0.5
    return {"views": views, "clean": views, "masks": masks, "rotations": torch.randint(4, (B, 2))}


def crops() -> dict[str, Tensor]:
    return {"global": torch.rand(B, 2, 3, 16, 16), "local": torch.rand(B, 3, 3, 8, 8)}


def answer_pairs() -> dict[str, Tensor]:
    """Pairs of answers that begin at the third token, and what a reference might say of them."""
    found = {}
    for side in ("chosen", "rejected"):
        found |= {side: ids(B, T), f"{side}_mask": real(), f"{side}_answer": real() & (torch.arange(T) > 1)}
        found[f"{side}_reference"] = -torch.rand(B)
    return found


def written() -> dict[str, Tensor]:
    """What a policy might have written from the third token on, and what it was worth."""
    chances = {name: -torch.rand(B, T - 1) for name in ("old_log_probs", "reference")}
    return {
        "ids": ids(B, T),
        "mask": real(),
        "answer": real() & (torch.arange(T) > 1),
        **chances,
        "advantages": torch.randn(B),
    }


LABELS = partial(torch.randint, 3, (B,))
OBJECTIVES: dict[str, Callable[[], tuple[nn.Module, Callable, Callable[[], dict[str, Tensor]]]]] = {
    "nnlm": lambda: (
        nnlm.NNLM(nnlm.NNLMConfig(V, n=4, embed_size=8, hidden_size=16)),
        nnlm.nnlm_loss,
        lambda: {"context": ids(B, 3), "target": ids(B)},
    ),
    "rnn_lm": streams,
    **{
        f"seq2seq-{score}": partial(
            lambda score: (
                seq2seq.Seq2Seq(seq2seq.Seq2SeqConfig(V, bos_id=1, score=score, input_feeding=score == "general")),
                seq2seq.seq2seq_loss,
                pairs,
            ),
            score,
        )
        for score in (None, "dot", "general", "concat", "additive")
    },
    "transformer": lambda: (
        transformer.Transformer(transformer.TransformerConfig(V, 16, 2, 32, 2, max_length=T)),
        transformer.transformer_objective(),
        pairs,
    ),
    "gpt": lambda: (gpt.GPT(GPT), gpt.gpt_loss, lambda: {"ids": ids(B, T + 1)}),
    "gpt-padded": lambda: (gpt.GPT(GPT), gpt.gpt_loss, lambda: texts(loss_mask=ids(B, T) > 9)),
    "llama": lambda: (llama.Llama(LLAMA), gpt.gpt_loss, texts),
    "llama-window": lambda: (llama.Llama(replace(LLAMA, window=3, qk_norm=True)), gpt.gpt_loss, texts),
    "gpt-1": lambda: (
        gpt.GPT(gpt.GPTConfig(V, 16, n_heads=2, d_ff=32, n_layers=2, max_length=T, norm_first=False)),
        gpt.gpt_loss,
        texts,
    ),
    "reward": lambda: (reward.RewardModel(gpt.GPT(GPT)), reward.preference_loss, answer_pairs),
    "dpo": lambda: (gpt.GPT(GPT), dpo.dpo_objective(label_smoothing=0.1), answer_pairs),
    "ipo": lambda: (gpt.GPT(GPT), dpo.dpo_objective(loss="ipo"), answer_pairs),
    "ppo": lambda: (gpt.GPT(GPT), ppo.ppo_objective(temperature=0.8), written),
    "grpo": lambda: (gpt.GPT(GPT), grpo.grpo_objective(), written),
    "induction": lambda: (
        AttentionOnly(AttentionOnlyConfig(V, 16, 2, 2, max_length=T)),
        gpt.gpt_loss,
        lambda: {"ids": ids(B, T)},
    ),
    "bert-pretraining": lambda: (bert.BertForPreTraining(body()), bert.pretraining_loss, masked),
    "bert-classification": lambda: (
        bert.BertForSequenceClassification(body(), ["a", "b", "c"]),
        bert.classification_loss,
        lambda: texts(labels=LABELS()),
    ),
    "bert-tagging": lambda: (
        bert.BertForTokenClassification(body(False), ["a", "b", "c"]),
        bert.tagging_loss,
        lambda: texts(tags=torch.randint(3, (B, T)), tagged=real() & (torch.arange(T) > 0)),
    ),
    "bert-span": lambda: (
        bert.BertForQuestionAnswering(body(False)),
        bert.span_loss,
        lambda: texts(start=torch.ones(B, dtype=torch.long), end=torch.full((B,), 2)),
    ),
    "vit": lambda: (vit.ViT(VIT(classes=3)), vit.vit_loss, lambda: images(labels=LABELS())),
    "cnn": lambda: (CNN(CNNConfig(classes=3)), vit.vit_loss, lambda: images(labels=LABELS())),
    "sit": lambda: (sit.SiT(sit.SiTConfig(VIT(classes=0, pooling="mean"), d_contrast=8)), sit.sit_loss, two_views),
    "mae": lambda: (
        mae.MAE(mae.MAEConfig(VIT(classes=0), d_decoder=8, decoder_heads=2, decoder_layers=1)),
        mae.mae_loss,
        lambda: images(order=torch.rand(B, 16).argsort(dim=1)),
    ),
    "dino": lambda: (dino.DINO(DINO), dino.dino_loss, crops),
    "patchtst": lambda: (patchtst.PatchForecaster(PATCHES, 6), patchtst.forecast_loss, series),
    "quantiles": lambda: (patchtst.PatchForecaster(PATCHES, 6, (0.1, 0.5, 0.9)), patchtst.forecast_loss, series),
    "absolute": lambda: (patchtst.PatchForecaster(PATCHES, 6), patchtst.absolute_loss, series),
    "encoder-decoder": lambda: (
        EncoderDecoderForecaster(PATCHES, 6),
        teacher_forcing_loss,
        series,
    ),
    "series-classifier": lambda: (
        patchtst.SeriesClassifier(PATCHES, 2, 3),
        patchtst.series_classification_loss,
        lambda: {"history": torch.rand(B, 24, 2), "labels": LABELS()},
    ),
    "dlinear": lambda: (DLinear(DLinearConfig(24, 6)), patchtst.forecast_loss, series),
    "lstm": lambda: (LSTMForecaster(LSTMForecasterConfig(24, 6, 2)), patchtst.forecast_loss, series),
}
