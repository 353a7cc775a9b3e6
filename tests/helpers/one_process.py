"""Which tests run in one process, where several share them: those that share what takes long to start.

The marker `xdist_group` of pytest-xdist 3.8 is for that, but it does nothing under pytest 9.2: it writes an attribute
of tests that is no longer read.
"""

MODELS = "tests/models/test_models.py"
DEMO = "tests/models/test_demo.py"
TOGETHER = {
    "tests/batch/test_batch_on_ray.py",
    "tests/models/test_bfcl.py",
    "tests/models/test_conversations_with_models.py",
    "tests/models/test_misnamed_models.py",
    "tests/proxy/test_inspector_page.py",
}
"""Files whose tests share a cluster, a browser or a model."""


def scope_of(test: str) -> str:
    """Return what the tests have in common that run in the same process; the test's own id where there is nothing.

    Real models in raw mode take as long as in all other ways together: they are asked by another process. It has the
    demo, too, which is one long test: by itself it would begin last, and leave the other process with nothing to do.
    """
    file = test.partition("::")[0]
    if file in {MODELS, DEMO}:
        return f"{MODELS}, {'raw mode' if file == DEMO or 'raw mode' in test.replace('_', ' ') else 'others'}"
    return file if file in TOGETHER else test
