"""``coursekit single``: each model in a file of its own computes what the package's does, without the package."""

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module

import pytest
import torch

from coursekit.commands import cli
from coursekit.commands.lectures import LectureError, home
from coursekit.commands.single import models, single
from tests.train.objectives import OBJECTIVES

BODY = "Bert(BertConfig(30, 16, 2, 32, 2, 10))"
VIT = "ViTConfig(16, 4, 3, 16, 2, 32, 2, {})"
PATCHES = "PatchTSTConfig(24, 8, 4, 16, 2, 32, 2)"
SQUARE = "lambda model, batch: (model(batch['{}']).square().sum(), torch.tensor(1))"
# of each model's file: the objective whose batch it gets, and in its own names a small model and a loss
CASES = {
    "bert": ("bert-pretraining", f"BertForPreTraining({BODY})", "pretraining_loss"),
    "cnn": ("cnn", "CNN(CNNConfig(classes=3))", SQUARE.format("images")),
    "dino": ("dino", f"DINO(DINOConfig({VIT.format(0)}, 32, 16, 20))", "dino_loss"),
    "dlinear": ("dlinear", "DLinear(DLinearConfig(24, 6))", SQUARE.format("history")),
    "encoder_decoder_forecaster": ("patchtst", f"EncoderDecoderForecaster({PATCHES}, 6)", "teacher_forcing_loss"),
    "patchtst": ("patchtst", f"PatchForecaster({PATCHES}, 6)", "forecast_loss"),
    "gpt": ("gpt-padded", "GPT(GPTConfig(30, 16, 2, 32, 2, 10))", "gpt_loss"),
    "induction": ("induction", "AttentionOnly(AttentionOnlyConfig(30, 16, 2))", SQUARE.format("ids")),
    "lstm_forecaster": ("lstm", "LSTMForecaster(LSTMForecasterConfig(24, 6, 2))", SQUARE.format("history")),
    "llama": ("llama", "Llama(LlamaConfig(30, 16, 4, 2, 32, 2))", SQUARE.format("ids")),
    "mae": ("mae", f"MAE(MAEConfig({VIT.format(0)}, 0.75, 8, 2, 1))", "mae_loss"),
    "nnlm": ("nnlm", "NNLM(NNLMConfig(30, 4, 8, 16))", "nnlm_loss"),
    "rnn_lm": ("rnn_lm", "RNNLM(RNNLMConfig(30, 8, 16))", "tbptt_objective(Streams([[3, 4, 5]], 4, 5))"),
    "seq2seq": ("seq2seq-additive", "Seq2Seq(Seq2SeqConfig(30, 1, score='additive'))", "seq2seq_loss"),
    "sit": ("sit", f"SiT(SiTConfig({VIT.format('0, pooling=' + repr('mean'))}, d_contrast=8))", "sit_loss"),
    "transformer": (
        "transformer",
        "Transformer(TransformerConfig(30, 16, 2, 32, 2, max_length=10))",
        "transformer_objective()",
    ),
    "vit": ("vit", f"ViT({VIT.format(3)})", "vit_loss"),
}
COURSE = ("coursekit.nn.attention", "coursekit.nn.blocks", "coursekit.models.gpt", "coursekit.models.transformer")
WITH_DOCSTRING = ast.Module, ast.ClassDef, ast.FunctionDef
POLICY = "nn.Embedding(30, 30)"  # what a token makes of the next one, which is a language model too
LEARNS = "lambda model, batch: {}(lambda ids, mask: model(ids), batch)"
CASES |= {
    "dpo": ("dpo", POLICY, LEARNS.format("dpo_objective()")),
    "grpo": ("grpo", POLICY, LEARNS.format("grpo_objective()")),
    "ppo": ("ppo", POLICY, LEARNS.format("ppo_objective()")),
    "reward": (
        "reward",
        "RewardModel(GPT(GPT.__init__.__globals__['GPTConfig'](30, 16, 2, 32, 2, 10)))",
        "preference_loss",
    ),
}
MEASURE = """
def measure(names, model, loss, batch):
    torch.manual_seed(0)
    model = eval(model, names)
    total, count = eval(loss, names)(model, batch)
    total.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return dict(model.state_dict()), {"loss": total.detach(), "count": count, **gradients}
"""
ALONE = f"""
import sys
from importlib import import_module
import torch
{MEASURE}
sys.modules["coursekit"] = None  # to import it is an error
sent = torch.load("sent.pt")
torch.save({{name: measure(vars(import_module(name)), *one) for name, one in sent.items()}}, "found.pt")
"""
KINDS = {"single": False, "plain": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("single")
    for name in models():
        for kind, plain in KINDS.items():
            (folder / f"{name}_{kind}.py").write_text(single(name, plain), encoding="utf-8")
    return folder


def test_in_an_interpreter_without_the_package_every_model_computes_the_same_bits(folder, monkeypatch):
    scope = {"torch": torch}
    exec(MEASURE, scope)
    torch.manual_seed(1)
    made = {name: (*made, OBJECTIVES[batch]()[2]()) for name, (batch, *made) in CASES.items()}
    sent = {f"{name}_{kind}": one for name, one in made.items() for kind in KINDS}
    torch.save(sent, folder / "sent.pt")
    subprocess.run([sys.executable, "-c", ALONE], cwd=folder, check=True)
    for name, (state, measured) in torch.load(folder / "found.pt").items():
        names = {"torch": torch, **vars(import_module(models()[name.rpartition("_")[0]]))}
        with monkeypatch.context() as changed:
            for module in ("attention", "dropout") if name.endswith("_plain") else ():  # there PyTorch's draws
                changed.setattr(f"coursekit.nn.{module}.drop", torch.nn.functional.dropout)
            own_state, own = scope["measure"](names, *sent[name])
        assert list(state) == list(own_state)
        assert all(torch.equal(state[key], own_state[key]) for key in state), name
        assert measured.keys() == own.keys()
        assert all(torch.equal(measured[key], own[key]) for key in own), name


@pytest.mark.parametrize("kind", KINDS)
def test_counts_need_no_torch(kind, folder):
    names = {}
    exec((folder / f"ngram_{kind}.py").read_text(encoding="utf-8"), names)
    from coursekit.models.ngram import KneserNey

    documents = [[1, 2, 3], [1, 2, 4]]
    own, alone = (kind(3, 5).fit(documents).next_probabilities([1, 2]) for kind in (KneserNey, names["KneserNey"]))
    assert own.tolist() == alone.tolist()
    assert "torch" not in names


def test_a_method_that_a_docstring_names_is_there(folder):
    """Methods that nothing calls are left out, but for those to which a reader is sent."""
    named = set()
    for path in sorted(folder.glob("*_single.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        own = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        methods = {one.name for node in own.values() for one in node.body if isinstance(one, ast.FunctionDef)}
        for name in own:
            whole = [getattr(module, name, None) for module in map(import_module, COURSE)]
            every = {
                method for one in whole if inspect.isclass(one) for method, of in vars(one).items() if callable(of)
            }
            texts = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, WITH_DOCSTRING)]
            sent = {*re.findall(r"``(\w+)``", "\n".join(texts))} & every
            assert sent <= methods, (path.name, name)
            named |= sent
    assert named >= {"new_caches"}


def test_every_model_is_tried():
    assert {*CASES, "ngram"} == set(models())


def test_ruff_has_nothing_to_say(folder):
    """Not even of unused imports, of unknown names, or of the format."""
    for command in (["check"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--no-cache", "--config", home() / "pyproject.toml", "."]
        # quotes around annotations, which the package needs; values that only a test needed, taken apart with others;
        # lines that the end of a shortened docstring makes longer
        ruff += ["--ignore", "UP037,RUF059,E501"] * (command == ["check"])
        done = subprocess.run(ruff, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", models())
def test_a_file_has_what_the_model_needs_and_nothing_else(name):
    text = single(name)
    own = import_module(models()[name])
    others = re.sub(
        rf"^# --- coursekit/models/(rivals/)?{name}\.py -.+?(?=^# --- |\Z)", "", text, flags=re.DOTALL | re.MULTILINE
    )
    words = re.findall(r"\w+", "\n".join(ast.unparse(node) for node in ast.parse(text).body))
    for node in ast.parse(others).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            assert words.count(node.name) > 1, f"{node.name} is not used"
    for thing in vars(own).values():
        if getattr(thing, "__module__", None) == own.__name__ and hasattr(thing, "__qualname__"):
            assert inspect.getsource(thing).replace("(Pretrained)", "(nn.Module)") in text


def code_of(text):
    """The lines of a file behind its docstring, without the spaces at their ends."""
    return [line.strip() for line in text.splitlines()[ast.parse(text).body[0].end_lineno :]]


@pytest.mark.parametrize("name", models())
def test_a_plain_file_has_short_docstrings_and_tests_no_arguments(name):
    text = single(name, plain=True)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, WITH_DOCSTRING)]
    said = [ast.get_docstring(node) or "" for node in nodes[1:]]
    assert not [one for one in said if "\n\n" in one]
    whole = {ast.get_docstring(node) for node in ast.walk(ast.parse(single(name))) if isinstance(node, WITH_DOCSTRING)}
    assert {*said} <= {(one or "").partition("\n\n")[0] for one in whole} | {""}
    code = "\n".join(code_of(text))
    assert not re.search(r"\bcheck_(text|ids|caches|sizes|heads|dropout|attention|sequence|all)\(", code)
    assert code.count("raise ") <= 2
    comments = [line for line in code_of(text) if "# " in line]
    assert comments
    assert {*comments} <= {*code_of(single(name).replace("= drop(", "= F.dropout("))}
    assert not re.search(r"(?<!nn\.)\bDropout\(|\bdrop\(", code)  # that is PyTorch's here


@pytest.mark.parametrize("plain", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("name", models())
def test_the_model_comes_first_and_the_docstring_says_what_follows(name, plain):
    text = single(name, plain)
    docstring = ast.get_docstring(ast.parse(text))
    sections = re.split(r"^# --- (\S+) -+$", text, flags=re.MULTILINE)[1:]
    told = re.findall(r"^    (coursekit/\S+): ((?:.+|\n {8})+)", docstring, re.MULTILINE)
    assert [path for path, _ in told] == sections[::2]
    assert told[0][0] == models()[name].replace(".", "/") + ".py"
    for (path, names), code in zip(told, sections[1::2]):
        for one in re.findall(r"\w+", names):
            assert re.search(rf"^(def |class )?{one}\b", code, re.MULTILINE), f"{path} has no {one}"
    away = re.findall(
        r"``coursekit\.(\w+)\.(\w+)``", docstring.partition("only in the course:")[2].partition("\n\n")[0]
    )
    known = {*(path.removeprefix("coursekit/") for path, _ in told), *("/".join(names) + ".py" for names in away)}
    assert {name.removeprefix("coursekit/") for name in re.findall(r"[\w/]+/\w+\.py", text)} <= known


@pytest.mark.parametrize(
    ("name", "others"),
    [("gpt", {"record_attention"}), ("seq2seq", {"record_attention"}), ("mae", {"record_attention"})],
)
def test_what_a_docstring_names_but_the_file_lacks_is_said(name, others):
    listed = ast.get_docstring(ast.parse(single(name))).partition("only in the course:")[2].partition("\n\n")[0]
    assert {*re.findall(r"``(\w+)``", listed)} - {"Training"} == others


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("gpt", "3 5 goes on as 7 9 1 3 5 7 9 1"),
        ("llama", "3 5 goes on as 7 9 1 3 5 7 9 1"),
        ("dpo", "new pairs: the better answer gained more in (9.|100) %"),
        ("bert", "blanks in new rows: [4-9]. % right"),
        ("transformer", "3 4 5 6 7 becomes 7 6 5 4 3"),
        ("vit", "new images: [6-9]. % right"),
        ("dino", "no collapse: {'entropy': [1-9]"),
    ],
)
def test_run_as_a_program_a_file_trains_a_tiny_model(folder, name, last):
    done = subprocess.run([sys.executable, f"{name}_single.py"], cwd=folder, capture_output=True, text=True, check=True)
    losses = [float(loss) for loss in re.findall(r"loss (\S+)", done.stdout)]
    assert len(losses) == 5
    assert losses[-1] < 0.9 * losses[0]
    assert re.match(last.replace(" %", "%"), done.stdout.splitlines()[-1])


def test_the_command_writes_a_new_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["coursekit", "single", "gpt"])
    for code in (None, 2):
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == code
    said, failed = capsys.readouterr()
    assert said == "Written: gpt_single.py\n"
    assert failed == "gpt_single.py is there already: remove it, or name another file with --out\n"
    assert (tmp_path / "gpt_single.py").read_text(encoding="utf-8") == single("gpt")


def test_another_name_than_a_models_is_refused():
    with pytest.raises(LectureError, match="no model 'pretrained'; there are: bert, cnn, "):
        single("pretrained")
