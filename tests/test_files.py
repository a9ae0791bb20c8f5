import os

import pytest

from coursekit.files import write_atomically


def test_a_file_is_written_and_replaced_in_folders_that_are_made(tmp_path):
    path = tmp_path / "new" / "folder" / "a.json"
    write_atomically(path, lambda temporary: temporary.write_text("1"))
    assert path.read_text() == "1"
    write_atomically(str(path), lambda temporary: temporary.write_bytes(b"22"))
    assert path.read_bytes() == b"22"
    assert os.listdir(path.parent) == ["a.json"]


def test_readers_see_the_old_file_until_the_new_one_is_on_the_disk(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text("old")
    order = []
    sync, replace = os.fsync, os.replace

    def fsync(number):
        order.append(("sync", os.fstat(number).st_ino, os.fstat(number).st_size, path.read_text()))
        sync(number)

    def rename(source, target):
        order.append(("rename", os.stat(source).st_ino, os.stat(source).st_size, path.read_text()))
        assert os.path.dirname(source) == os.path.dirname(target), "a rename between disks would be a copy"
        replace(source, target)

    def write(temporary):
        with temporary.open("w") as file:
            file.write("new and ")
            file.flush()
            assert path.read_text() == "old"
            file.write("longer")

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    write_atomically(path, write)
    assert path.read_text() == "new and longer"
    number = path.stat().st_ino
    assert order == [("sync", number, 14, "old"), ("rename", number, 14, "old")]


@pytest.mark.parametrize("old", ["old", None])
@pytest.mark.parametrize("where", ["write", "fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch, where, old):
    path = tmp_path / "a.json"
    if old:
        path.write_text(old)

    def fail(*_):
        raise KeyboardInterrupt  # also what is no Exception

    def write(temporary):
        temporary.write_text("half")
        if where == "write":
            fail()

    if where != "write":
        monkeypatch.setattr(os, where, fail)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, write)
    assert os.listdir(tmp_path) == (["a.json"] if old else [])
    assert not old or path.read_text() == old


def test_what_was_not_written_is_no_file(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(FileNotFoundError):
        write_atomically(path, lambda temporary: None)
    assert path.read_text() == "old"


def test_a_file_may_be_read_by_those_who_may_read_any_new_file(tmp_path):
    def write(temporary):
        temporary.write_text("x")
        temporary.chmod(0o600)  # as safetensors does

    (tmp_path / "any").touch()
    write_atomically(tmp_path / "a", write)
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "any").stat().st_mode
