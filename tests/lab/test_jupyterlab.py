"""The lecture in a real JupyterLab in a real Chromium: cells run, widgets answer, the stop button stops."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import nbformat
import pytest

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
LECTURE = ROOT / "notebooks" / "02_seq2seq_attention.ipynb"
WITH_SIZES = {"a widget": ".ck p[aria-live]", "a figure": "svg.ck-grows", "a listing": ".ck-grows pre"}


def lab_notebook(path: Path) -> None:
    """The lecture with little training: the first parts, a widget to type into, and a run that lasts until stopped."""
    notebook = nbformat.read(LECTURE, as_version=4)
    keep = ["title", "setup", "imports", "training-recipe", "measure", "record"]
    cells = {cell.id: cell for cell in notebook.cells}
    code = nbformat.v4.new_code_cell
    chosen = [cells[i] for i in keep[:-1]]
    chosen += [
        code("vocabulary = {'vocab_size': 17, 'bos_id': bos_id(16)}"),
        code("fresh = reversal(4, 5, 16, torch.Generator())['source']"),
        code(
            "config = Seq2SeqConfig(**vocabulary, embed_size=8, hidden_size=16, score='dot')\n"
            "run = prepare(config, Fresh(lambda g: reversal(8, 5, 16, g)), 1_000_000, 1e-3)\n"
            "history = await LivePlot('Long').follow(run)\n"
            "print('stopped at', run.step, run.step == history[-1]['step'])",
            id="long-run",
        ),
        code("long_runs = {'dot': run}\nrun.model.eval();"),
        code(cells["record"].source.split("\n\n\noutput, weights")[0]),
        code("output, weights = look(run.model, fresh)\nAlignment(fresh[0], output[0], weights[0], title='Still')"),
        code(cells["live-widget"].source.split("yours = ")[0] + "reverse('3 1 4').live(reverse)"),
        code("from coursekit.viz import bars, show\nbars({'drawn': 0.5});", id="a-figure"),
        code("show(seq2seq_loss)"),
        code("print('the end')"),
    ]  # fmt: skip
    notebook.cells = chosen
    nbformat.write(notebook, path)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A server on a free port with settings of its own; yields the address."""
    root = tmp_path_factory.mktemp("lab")
    (root / "notebooks").mkdir()
    lab_notebook(root / "notebooks" / "02_lecture.ipynb")
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {f"JUPYTER_{kind}_DIR": str(root / f".{kind.lower()}") for kind in ("CONFIG", "DATA", "RUNTIME")}
    (root / ".config").mkdir()
    (root / ".config" / "jupyter_server_config.json").write_text('{"LabApp": {"expose_app_in_browser": true}}')
    environment = {**os.environ, **own, "IPYTHONDIR": str(root / ".ipython"), "JUPYTER_TOKEN": "t"}
    environment = {name: value for name, value in environment.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    command = [sys.executable, "-m", "coursekit", "lab", f"--port={port}"]
    with (
        open(root / "log.txt", "w") as log,
        subprocess.Popen(command, cwd=root, env=environment, stdout=log, stderr=log) as server,
    ):
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                urllib.request.urlopen(f"{address}/api?token=t", timeout=2).close()
                break
            time.sleep(0.2)
        yield address
        server.terminate()
        server.wait(60)
    with pytest.raises(urllib.error.URLError):  # JupyterLab itself, which `coursekit lab` started, has ended too
        urllib.request.urlopen(address, timeout=2)


@pytest.mark.slow
def test_run_all_then_stop_then_type(lab, browser):
    page = browser.new_page(viewport={"width": 1200, "height": 2400})
    page.goto(f"{lab}/lab/tree/notebooks/02_lecture.ipynb?token=t&reset")
    # "run all" before the kernel is idle would be dropped without a word
    kernel = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel"
    page.wait_for_function(f"{kernel}?.status === 'idle'", timeout=60_000)
    page.evaluate("() => { window.finished = jupyterapp.commands.execute('notebook:run-all-cells'); }")

    stop = page.get_by_role("button", name="Stop training")
    stop.wait_for(timeout=60_000)
    page.wait_for_function("document.querySelector('.ck polyline')?.getAttribute('points').split(' ').length > 5")
    stop.focus()
    page.keyboard.press("Enter")
    page.get_by_text(re.compile(r"^stopped at \d+ True")).wait_for(timeout=20_000)
    assert page.evaluate("document.activeElement !== document.body"), "the keyboard still has a place"
    page.get_by_text("the end", exact=True).last.wait_for(state="attached", timeout=60_000)
    page.evaluate("() => window.finished")
    assert not page.get_by_text("Traceback").count()
    assert not page.get_by_text("official Jupyter news").count()
    assert page.get_by_text(re.compile(r"Stopped after \d+ of 1000000 updates")).count() >= 1

    still = page.get_by_role("region", name="Attention alignment").first
    still.get_by_role("button", name="Last step").click()
    page.keyboard.press("ArrowLeft")  # goes to the widget, not to the notebook
    assert still.locator("p[aria-live]").inner_text().startswith("Step 4 of 5")

    typed = page.get_by_role("region", name="Attention alignment").last
    field = typed.get_by_role("textbox", name="Source", exact=True)
    field.fill("7 7 1 2")
    field.press("Enter")
    typed.get_by_text("Step 1 of 4").wait_for(timeout=20_000)
    field.fill("99")
    field.press("Enter")
    typed.get_by_text("Type numbers from 0 to 15").wait_for(timeout=20_000)

    page.set_viewport_size({"width": 1800, "height": 2400})
    shown = {name: page.locator(f".jp-OutputArea {kind}").last for name, kind in WITH_SIZES.items()}
    before = {name: each.bounding_box()["height"] for name, each in shown.items()}
    page.evaluate("() => { jupyterapp.shell.presentationMode = true; }")
    for name, each in shown.items():
        assert each.bounding_box()["height"] > 1.15 * before[name], f"{name}: too small for a lecture hall"
