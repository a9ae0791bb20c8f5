import pytest

from coursekit.recipes import unlabelled


@pytest.fixture
def few_images(monkeypatch):
    """For the recipes without labels."""
    monkeypatch.setattr(unlabelled, "IMAGES", 24)
    monkeypatch.setattr(unlabelled, "GALLERY", 36)
    monkeypatch.setattr(unlabelled, "QUERIES", {"validation": 12, "test": 24})
