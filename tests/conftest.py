import os
import shutil
import sys

# For the notebooks that tests execute too: a thread that waits for another one burns a core meanwhile.
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import pytest
import torch
from hypothesis import settings
from torch import nn

import coursekit.commands  # noqa: F401  before anyone imports nbformat, which is slow without it

settings.register_profile("course", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")))
settings.load_profile("course")

torch.set_num_threads(1)

FULL = bool(os.environ.get("FULL"))  # set by `make full`: more seeds and examples, and what takes minutes
IN_FULL = pytest.mark.skipif(not FULL, reason="for make full: it takes minutes")
GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with cuda")]


LONGEST = ("test_checks.py", "test_release.py", "test_marking.py", "test_class.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: each is one worker's, and all wait for the last one."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=GPU)])
def where(request) -> torch.device:
    """The CPU, and cuda where there is one."""
    return torch.device(request.param)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(autouse=True)
def _no_figure_is_left_open():
    """Matplotlib warns, and a warning is an error, when a process has more than twenty open."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def randomise(model: nn.Module, seed: int = 0, std: float = 0.3) -> nn.Module:
    """Fill every parameter with noise: at its default initialisation a dropped bias would show nothing."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)
    return model


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]


@pytest.fixture(scope="module")
def browser():
    """Debian's chromium, driven by Playwright (whose event loop runs as long as the fixture lives)."""
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("no chromium: .ci/run installs it")
        pytest.skip("no chromium on this machine; on Debian: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()
