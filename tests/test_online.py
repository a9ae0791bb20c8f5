"""Online cells: skipped in one line where they cannot work, and only then."""

import socket

import pytest
from huggingface_hub import constants

from coursekit.online import hub_answers, online


@pytest.fixture
def hub(monkeypatch):
    """A hub that listens on this machine; close it and it is gone."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield server


def test_a_hub_answers_until_it_is_gone(hub, monkeypatch):
    assert hub_answers()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert not hub_answers(), "the user's own switch"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    hub.close()
    assert not hub_answers()


def test_a_cell_is_told_whether_it_is_offline_and_gives_its_result(hub):
    assert online(lambda offline: ("result", offline)) == ("result", False)
    hub.close()
    assert online(lambda offline: ("result", offline)) == ("result", True)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("\n  could not\nconnect. More"), "could not connect\n"),
        (ImportError("needs sentencepiece"), "needs sentencepiece"),
        (ImportError(), "ImportError"),
    ],
)
def test_what_is_missing_is_said_in_one_line(hub, capsys, error, said):
    def cell(offline):
        raise error

    assert online(cell) is None
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert said in printed


def test_a_mistake_in_the_cell_is_not_hidden(hub):
    with pytest.raises(KeyError):
        online(lambda offline: {}["typo"])


def test_nothing_is_fetched_and_no_minute_is_lost_without_the_hub(hub, capsys, tmp_path, monkeypatch):
    hub.close()
    asked = []
    monkeypatch.setattr("httpx.Client.send", lambda *args, **more: asked.append(args))

    @online
    def tokenizer(offline):
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained("nobody/nothing", local_files_only=offline, cache_dir=tmp_path)

    assert tokenizer is None
    assert not asked
    assert "Skipped" in capsys.readouterr().out
