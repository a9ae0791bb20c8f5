import ast

from coursekit.data import code, pydocs


def test_files_of_the_standard_library_by_split():
    found = {split: code.documents(split) for split in pydocs.SPLITS}
    characters = {split: sum(len(document.text) for document in rows) for split, rows in found.items()}
    assert characters["train"] > 3_000_000
    assert min(characters["validation"], characters["test"]) > 300_000
    for split, rows in found.items():
        names = [document.name for document in rows]
        assert names == sorted(set(names))
        assert {pydocs.split_of(name) for name in names} == {split}
        assert all(name.endswith(".py") and not {"test", "tests"} & set(name.split("/")) for name in names)
    assert len({document.name for rows in found.values() for document in rows}) == sum(map(len, found.values()))


def test_a_file_is_as_it_is_on_the_disk():
    every = {document.name: document.text for split in pydocs.SPLITS for document in code.documents(split)}
    with open(ast.__file__, encoding="utf-8") as file:
        assert every["ast.py"] == file.read()
    assert all(text.strip() for text in every.values())
