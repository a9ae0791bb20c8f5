import os

import pytest

from coursekit.grading.sandbox import why_not


@pytest.fixture(scope="session")
def bubblewrap():
    """Tests that run students' code need bubblewrap."""
    if problem := why_not():
        if os.environ.get("CI"):
            pytest.fail(f"no sandbox: {problem}")
        pytest.skip(problem)
