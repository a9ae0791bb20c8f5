"""The way to the Hugging Face hub, against a server on this machine that speaks its protocol, well and badly."""

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load, load_file, save

from coursekit.convert import hub
from coursekit.convert.hub import HubError, fetch
from coursekit.models.bert import Bert, BertConfig, BertForPreTraining
from coursekit.online import online
from tests.conftest import randomise

NAME = "owner/tiny-bert"


class Hub(ThreadingHTTPServer):
    """Serves models as the hub does: small files as they are, weights by a redirect to another host, both with digests.

    Attributes:
        models: name -> file name -> content.
        fault: what goes wrong, by its name in ``Handler``; empty for nothing.
        log: (method, path) of each request.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.models: dict[str, dict[str, bytes]] = {}
        self.commit = "0123456789abcdef0123456789abcdef01234567"
        self.fault, self.cuts, self.log, self.closing = "", 0, [], threading.Event()

    def handle_error(self, request, client_address):
        pass  # the client went away: here that is no surprise

    def bodies(self) -> list[str]:
        return [path for method, path in self.log if method == "GET" and ("/resolve/" in path or "/cdn/" in path)]


def digest(name: str, content: bytes) -> str:
    if name.endswith(".safetensors"):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # as git names it


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        server, body = self.server, self.command == "GET"
        server.log.append((self.command, self.path))
        if server.fault == "silent" or (server.fault == "stalled" and body):
            server.closing.wait(20)
            return
        if server.fault == "down":
            return self.reply(503)
        if server.fault == "portal":  # of a hotel, which answers to everything
            return self.reply(200, {"Content-Type": "text/html"}, b"<html>Welcome! Please log in.")
        if self.path.startswith("/cdn/"):
            contents = {digest(n, c): c for files in server.models.values() for n, c in files.items()}
            return self.send(contents[self.path.removeprefix("/cdn/")])
        name, _, rest = self.path.lstrip("/").partition("/resolve/")
        revision, _, file = rest.partition("/")
        if name not in server.models:
            return self.reply(401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Invalid username or password."})
        assert revision == "main"
        commit = {"X-Repo-Commit": server.commit}
        if file not in server.models[name]:
            return self.reply(404, commit | {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"})
        content = server.models[name][file]
        etag = f'"{digest(file, content)}"'
        if not file.endswith(".safetensors"):
            return self.send(content, commit | {"ETag": etag})
        linked = {"X-Linked-ETag": etag, "X-Linked-Size": str(len(content))}
        there = f"http://localhost:{server.server_port}/cdn/{digest(file, content)}"
        return self.reply(302, commit | linked | {"Location": there})

    def send(self, content: bytes, headers=()):
        """The content from where it was asked for, cut or changed where that is the fault."""
        fault, start, status, more = self.server.fault, 0, 200, {}
        if "Range" in self.headers:
            start, status = int(self.headers["Range"].removeprefix("bytes=").split("-")[0]), 206
            more = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
        if fault == "damaged" and self.command == "GET":
            content = content[:-1] + bytes([content[-1] ^ 1])
        if fault == "cut" and self.command == "GET" and self.server.cuts > 0:
            self.server.cuts -= 1
            self.reply(status, {**dict(headers), **more}, content[start:], upto=0 if start else len(content) // 2)
            self.close_connection = True
            return
        self.reply(status, {**dict(headers), **more}, content[start:])

    def reply(self, status: int, headers=(), content: bytes = b"", upto: int | None = None):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[:upto])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A random model, and the files of its folder."""
    model = randomise(BertForPreTraining(Bert(BertConfig(30, 8, 2, 12, 1, max_length=8)))).eval()
    folder = tmp_path_factory.mktemp("tiny")
    model.save_pretrained(folder)
    return model, {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def server(tiny, tmp_path, monkeypatch):
    with Hub() as server:
        server.models = {NAME: dict(tiny[1]), "tiny-bert": dict(tiny[1])}
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.3)
        monkeypatch.setattr(hub, "SECONDS", 0.5)
        monkeypatch.setattr(time, "sleep", lambda seconds: None)  # between the tries of huggingface_hub
        yield server
        stop(server)
        thread.join()


def stop(server: Hub) -> None:
    server.closing.set()
    server.shutdown()
    server.server_close()


def same(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def cached(tmp_path) -> set[str]:
    """The files with content in the cache: blobs, and whatever else is there by mistake."""
    found = {path for path in (tmp_path / "cache").rglob("*") if path.is_file() and not path.is_symlink()}
    return {path.name for path in found if not {"refs", ".locks", ".no_exist"} & set(path.parts)} - {"CACHEDIR.TAG"}


def fails(words: str, call=lambda: BertForPreTraining.from_pretrained(NAME), kind=HubError) -> str:
    """The sentence with which ``call`` fails."""
    with pytest.raises(kind, match=words) as error:
        call()
    said = str(error.value)
    assert "\n" not in said
    assert ". " not in said, "more than a sentence: online() would cut it"
    assert len(said) < 250
    return said


@pytest.mark.parametrize("name", [NAME, "tiny-bert"])
def test_a_model_comes_from_the_hub_once(server, tiny, tmp_path, name):
    model, files = tiny
    assert same(BertForPreTraining.from_pretrained(name), model)
    assert len(server.bodies()) == 2  # config.json, and the weights from the other host
    assert cached(tmp_path) == {digest(n, content) for n, content in files.items()}
    assert same(BertForPreTraining.from_pretrained(name), model)
    assert len(server.bodies()) == 2
    server.log.clear()
    assert same(BertForPreTraining.from_pretrained(name, local_files_only=True), model)
    assert not server.log
    stop(server)
    assert same(Bert.from_pretrained(name), model.bert), "what was fetched once is there without the hub"


def test_a_new_version_is_noticed(server, tmp_path):
    BertForPreTraining.from_pretrained(NAME)
    new = randomise(BertForPreTraining(Bert(BertConfig(30, 8, 2, 12, 1, max_length=8))), seed=1)
    new.save_pretrained(tmp_path / "new")
    server.commit = "f" * 40
    server.models[NAME]["model.safetensors"] = (tmp_path / "new" / "model.safetensors").read_bytes()
    assert same(BertForPreTraining.from_pretrained(NAME), new)
    assert len(server.bodies()) == 3, "the configuration is the same"


def test_any_file_can_be_fetched(server):
    server.models[NAME]["tokenizer.json"] = b"{}"
    assert fetch(NAME, "tokenizer.json").read_bytes() == b"{}"


def in_shards(server) -> list[str]:
    """The model of the hub in two files and an index; their names."""
    weights = load(server.models[NAME].pop("model.safetensors"))
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    places = {name: shards[i % 2] for i, name in enumerate(sorted(weights))}
    for shard in shards:
        of_shard = {name: weights[name].clone() for name, place in places.items() if place == shard}
        server.models[NAME][shard] = save(of_shard)
    server.models[NAME]["model.safetensors.index.json"] = json.dumps({"weight_map": places}).encode()
    return shards


def test_shards_come_from_the_hub_once(server, tiny):
    in_shards(server)
    assert same(BertForPreTraining.from_pretrained(NAME), tiny[0])
    assert len(server.bodies()) == 4  # the configuration, the index and two shards
    assert same(BertForPreTraining.from_pretrained(NAME), tiny[0])
    assert len(server.bodies()) == 4
    server.log.clear()
    assert same(BertForPreTraining.from_pretrained(NAME, local_files_only=True), tiny[0])
    assert not server.log
    stop(server)
    assert same(BertForPreTraining.from_pretrained(NAME), tiny[0]), "what was fetched once is there without the hub"


def test_a_shard_that_the_hub_does_not_have_is_named(server):
    _, second = in_shards(server)
    content = server.models[NAME].pop(second)
    fails(rf"'owner/tiny-bert' has no {second} on ")
    server.models[NAME][second] = content
    server.fault = "damaged"
    fails("came with a wrong checksum and was deleted")
    server.fault = ""
    BertForPreTraining.from_pretrained(NAME)
    index = server.models[NAME]["model.safetensors.index.json"]
    server.models[NAME]["model.safetensors.index.json"] = index.replace(second.encode(), b"../../x.safetensors")
    server.commit, words = (
        "e" * 40,
        "index.json names '../../x.safetensors', and only .safetensors files in its own folder",
    )
    with pytest.raises(ValueError, match=words):
        BertForPreTraining.from_pretrained(NAME)
    assert not [path for _, path in server.log if "x.safetensors" in path]


def test_what_the_hub_does_not_have_is_said_at_once(server, tmp_path):
    fails(rf"{constants.ENDPOINT} has no model 'nobody/nothing'", lambda: Bert.from_pretrained("nobody/nothing"))
    del server.models[NAME]["model.safetensors"]
    server.models[NAME]["pytorch_model.bin"] = b"a pickle"
    said = fails(r"'owner/tiny-bert' has no model\.safetensors on ")
    assert "pytorch_model.bin may be there, a pickle, but is never opened" in said
    assert not [path for _, path in server.log if path.endswith(".bin")]
    assert len(cached(tmp_path)) == 1  # config.json


def test_a_connection_that_is_cut_for_good(server, tiny, tmp_path):
    server.fault, server.cuts = "cut", 10**9
    fails(r"config\.json of 'owner/tiny-bert' did not come whole \(.*\): try again later")
    server.fault = ""
    fetch(NAME, "config.json")
    server.fault = "cut"
    fails(r"model\.safetensors of 'owner/tiny-bert' did not come whole")
    assert cached(tmp_path) == {digest("config.json", tiny[1]["config.json"])}, "half a file was left"
    server.fault = ""
    assert same(BertForPreTraining.from_pretrained(NAME), tiny[0])


@pytest.mark.skipif(huggingface_hub.__version__.startswith("1."), reason="version 1 gives up, and we say so")
def test_a_connection_that_is_cut_once_goes_on_from_there(server, tiny):
    server.fault, server.cuts = "cut", 1
    assert fetch(NAME, "model.safetensors").read_bytes() == tiny[1]["model.safetensors"]
    assert len(server.bodies()) == 2


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_wrong_checksum_is_noticed_and_the_file_deleted(server, tiny, tmp_path, file):
    """A single changed bit: the size is right, and the file might even be read."""
    server.fault = "damaged"
    fails(rf"{file} of '{NAME}' came with a wrong checksum and was deleted: try again later", lambda: fetch(NAME, file))
    assert cached(tmp_path) == set()
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_symlink()]
    server.fault = ""
    assert fetch(NAME, file).read_bytes() == tiny[1][file]


def test_a_file_that_was_damaged_in_the_cache_is_noticed(server, tiny):
    path = fetch(NAME, "model.safetensors")
    content = bytearray(path.read_bytes())
    content[-5] ^= 16
    path.resolve().write_bytes(content)
    load_file(path)  # safetensors takes no notice
    fails(r"wrong checksum")
    assert same(BertForPreTraining.from_pretrained(NAME), tiny[0])


def test_a_hub_that_does_not_answer_takes_seconds_not_minutes(server, tiny):
    server.fault = "silent"
    start = time.monotonic()
    fails(
        r"http://127\.0\.0\.1:\d+ gave no answer that could be used \(.*\), and config\.json of .* not fetched before"
    )
    assert time.monotonic() - start < 5
    server.fault = ""
    BertForPreTraining.from_pretrained(NAME)
    server.fault = "silent"
    assert same(BertForPreTraining.from_pretrained(NAME), tiny[0]), "the cache would have done"


def test_an_answer_that_stops_coming(server, tmp_path):
    server.fault = "stalled"
    start = time.monotonic()
    fails(r"config\.json of 'owner/tiny-bert' did not come whole \(ReadTimeout")
    assert time.monotonic() - start < 10
    assert cached(tmp_path) == set()


@pytest.mark.parametrize("fault", ["down", "portal"])
def test_an_answer_that_is_no_hubs(server, tiny, fault, tmp_path):
    server.fault = fault
    fails({"down": r"gave no answer that could be used", "portal": "what answers at http.* is not the hub"}[fault])
    assert cached(tmp_path) == set()
    server.fault = ""
    BertForPreTraining.from_pretrained(NAME)
    server.fault = fault
    assert same(BertForPreTraining.from_pretrained(NAME), tiny[0])


def test_offline_says_so_in_one_line(server, capsys, monkeypatch):
    stop(server)
    fails(
        r"gave no answer that could be used \(ConnectError.*\), and config\.json of 'owner/tiny-bert' was not fetched"
    )
    words = r"offline, and config\.json of 'owner/tiny-bert' was not fetched before"
    fails(words, lambda: Bert.from_pretrained(NAME, local_files_only=True))
    capsys.readouterr()
    assert online(lambda offline: Bert.from_pretrained(NAME, local_files_only=offline)) is None
    printed = capsys.readouterr().out
    assert printed == (
        "Skipped, an extra that cannot run here: offline, and config.json of 'owner/tiny-bert' was not fetched before\n"
    )
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    fails(words)


def test_without_huggingface_hub_one_is_told_what_to_install(monkeypatch, tiny, tmp_path):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    fails("'bert-base-uncased' from the hub needs huggingface_hub: pip install huggingface_hub, or give a folder",
          lambda: Bert.from_pretrained("bert-base-uncased"), ImportError)  # fmt: skip
    tiny[0].save_pretrained(tmp_path)
    assert same(BertForPreTraining.from_pretrained(tmp_path), tiny[0]), "a folder needs no hub"


@pytest.mark.parametrize(
    "name",
    ["a/b/c", "./model", "../model", "/model", "owner/", "https://huggingface.co/x", "", "a b", "a--b", "a/b..c"],
)
def test_what_cannot_be_a_name_never_goes_to_the_hub(server, name):
    fails("is no folder, and no name of a model on the hub", lambda: Bert.from_pretrained(name), ValueError)
    assert not server.log


def test_a_folder_goes_before_a_name(server, tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny[0].save_pretrained("tiny-bert")
    Bert.from_pretrained("tiny-bert")
    assert not server.log


def test_it_goes_where_the_environment_says(server, tmp_path):
    """All of it as a user has it: HF_ENDPOINT, nothing replaced inside huggingface_hub."""
    code = f"from coursekit.models.bert import Bert; m = Bert.from_pretrained({NAME!r}); "
    code += "print(sum(p.numel() for p in m.parameters()))"
    settings = {"HF_ENDPOINT": constants.ENDPOINT, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"}
    settings |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, env=os.environ | settings, capture_output=True, text=True, check=False)
    expected = sum(p.numel() for p in Bert(BertConfig(30, 8, 2, 12, 1, max_length=8)).parameters())
    assert (done.returncode, done.stdout) == (0, f"{expected}\n"), done.stderr
    assert len(server.bodies()) == 2
