"""SmolLM2-135M-Instruct out of its GGUF file, as ``coursekit fetch smollm2`` gets it, beside transformers reading it.

``python -m tests.smollm2``, or ``python -m tests.full smollm2``. Where the file is not there, it says so and is fine.
"""

import time

import torch
import transformers
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from coursekit.convert.llama import to_hugging_face
from coursekit.decode.chat import reply
from coursekit.models.llama import LlamaConfig
from coursekit.recipes.smollm2 import is_whole, load, place
from coursekit.text.chat import chat_ids

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
QUESTION = (
    f"<|im_start|>system\n{SYSTEM}<|im_end|>\n"
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
)
ANSWER = "The capital of France is Paris.<|im_end|>"
CLOSE = 2e-3  # logits have a standard deviation of 4 and more


@torch.no_grad()
def main() -> None:
    path = place()
    if not is_whole(path):
        print("skipped, since the file is not here: coursekit fetch smollm2")
        return
    started = time.perf_counter()
    model, ours_encodes = load(path)
    seconds, n = time.perf_counter() - started, sum(p.numel() for p in model.parameters())
    assert model.config == LlamaConfig.smollm2_135m(), model.config
    assert n == 134_515_008, n
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**load_gguf_checkpoint(path)["config"])).eval()
    theirs.load_state_dict(load_gguf_checkpoint(path, True, theirs)["tensors"], strict=False)  # the output is tied
    ours = to_hugging_face(model)[1]
    expected = dict(theirs.named_parameters())
    assert ours.keys() == expected.keys()
    assert all(torch.equal(weight, expected[name]) for name, weight in ours.items())
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    assert ours_encodes.tokens == tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    prompt = chat_ids(ours_encodes, ["What is the capital of France?"], SYSTEM)
    assert prompt == tokenizer(QUESTION)["input_ids"]
    ids = torch.tensor([prompt])
    apart = max((model(x) - theirs(x).logits).abs().max().item() for x in (ids, torch.arange(0, 49_152, 96)[None]))
    assert apart < CLOSE, apart
    answer = "".join(token for token, _ in reply(model, ours_encodes, prompt, "<|im_end|>", 20))
    assert answer == ANSWER, answer
    print(f"{n:,} parameters in {seconds:.1f} s, all equal; logits at most {apart:.1g} apart; it answers: {answer}")


if __name__ == "__main__":
    main()
