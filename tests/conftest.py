"""Puts this folder on the import path, so that every suite can read the case tables through `casebook`."""

import gc
import importlib
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import pytest
from _pytest.assertion import rewrite
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from many_rows import Rows, in_sample
from one_process import scope_of

T = TypeVar("T")
NO_ORACLE = "NO ORACLE"
"""As in `oracle.MARK`."""


pytest.register_assert_rewrite("casebook", "shared_cases")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell's job in the background is not interrupted by its terminal, and passes that on to the programs under test
    signal.signal(signal.SIGINT, signal.default_int_handler)

vars(re)["_MAXCACHE"] = 1 << 16
"""Patterns that `re` keeps, instead of 512: what is looked for changes with every dialect, and is compiled once."""


vars(providers)["_get_local_constants"] = providers.Constants
"""Hypothesis draws from the constants of whichever modules are loaded: with `derandomize`, too, runs would differ."""


settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")  # nothing that the clock or chance decides: `make fuzz` is for that


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process a core: each collects all tests, compiles all patterns and starts servers of its own."""
    return os.cpu_count() or 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Have one process run what `one_process` says. `--dist loadgroup` asks for this."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByScope(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    return ByScope(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sample", type=int, default=1, metavar="N", help="one in N of what is tested in many forms")
    parser.addoption("--rows", default="", metavar="PART", help="of `every_row`: those with PART in their names")


@pytest.hookimpl(trylast=True)  # syrupy has to see what is left out, or its snapshots would count as unused
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the three of `tests/majors`, which take longest: no process is left with them at the end."""
    if (one_in := config.getvalue("sample")) > 1:
        kept = sampled(items, one_in)
        config.hook.pytest_deselected(items=list(set(items) - set(kept)))
        items[:] = kept
    items.sort(key=lambda item: item.get_closest_marker("majors") is None)
    for item in items:  # for all tests it would take longer than it spares
        if item.get_closest_marker("e2e") and "quick_to_make" not in (names := vars(item)["fixturenames"]):
            names.insert(0, "quick_to_make")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Iterator[object]:
    """Collect without the garbage collector: next to nothing of what is made is garbage."""
    if getattr(session.config, "workerinput", {}).get("workerid") == "gw1":
        rewrite_from_the_end(session.config)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def rewrite_from_the_end(config: pytest.Config) -> None:
    """Rewrite the assertions of test modules, the last one first, up to one that another process has rewritten.

    Each process needs all of them. Where none is kept of an earlier run, two that begin together would go through the
    same modules side by side, and each would rewrite all of them, which takes longer than all else of collecting.
    """
    state = config.stash[rewrite.assertstate_key]
    chosen = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    for module in reversed([found for path in chosen for found in sorted(path.rglob("test_*.py"))]):
        folder = rewrite.get_cache_dir(module)
        kept = folder / (module.name.removesuffix(".py") + rewrite.PYC_TAIL)
        if not rewrite.try_makedirs(folder) or vars(rewrite)["_read_pyc"](module, kept) is not None:
            return
        digest, code = vars(rewrite)["_rewrite_test"](module, config)
        vars(rewrite)["_write_pyc"](state, code, digest, kept)


SETTINGS = "_hypothesis_internal_use_settings"
MANY = 12
"""Forms of one test up to which all are run with `--sample`."""
LEFT_OUT = pytest.StashKey[int]()
"""How many forms `--sample` left out before items were made of them."""


def name_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def parameter(item: pytest.Item, name: str) -> Any:
    return item.callspec.params.get(name) if hasattr(item, "callspec") else None


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Drop the forms that `sampled` would leave out before items are made of them: it takes seconds in each process."""
    yield
    one_in = metafunc.config.getvalue("sample")
    forms = vars(metafunc).get("_calls", [])  # pytest's own, without which every item is made and then left out
    if "rows" in metafunc.fixturenames and forms and isinstance(forms[0].params["rows"], Rows):
        choose_rows(metafunc, forms)
        return
    # a snapshot of a form that was never made would count as unused, which is an error
    if one_in > 1 and len(forms) > MANY and "snapshot" not in metafunc.fixturenames:
        test = metafunc.definition
        kept = [forms[0], *(form for form in forms[1:] if in_sample(f"{test.nodeid}[{form.id}]", one_in))]
        metafunc.config.stash[LEFT_OUT] = metafunc.config.stash.get(LEFT_OUT, 0) + len(forms) - len(kept)
        forms[:] = kept


def choose_rows(metafunc: pytest.Metafunc, forms: list[Any]) -> None:
    """Drop the rows of `every_row` that a sample leaves out, and then empty groups; one row is kept of each test."""
    option, test = metafunc.config.getvalue, metafunc.definition.nodeid
    first = Rows(forms[0].params["rows"].named[:1])
    for form in forms:
        form.params["rows"] = form.params["rows"].chosen(test, option("sample"), option("rows"))
    kept = [form for form in forms if form.params["rows"].named]
    if not kept and not option("rows"):
        forms[0].params["rows"] = first
    forms[:] = kept or forms[:1]


def pytest_report_collectionfinish(config: pytest.Config) -> str:
    left_out = config.stash.get(LEFT_OUT, 0)
    return f"left out by --sample: {left_out} forms, besides what is deselected" if left_out else ""


def sampled(items: list[pytest.Item], one_in: int) -> list[pytest.Item]:
    """Return what `make test` runs: no exhaustive test, of many forms the first and a share, and fewer examples."""
    kept: list[pytest.Item] = []
    items = [item for item in items if item.get_closest_marker("exhaustive") is None]
    forms = Counter(map(name_of, items))
    begun: set[str] = set()
    for item in items:
        name = name_of(item)
        if (
            isinstance(parameter(item, "rows"), Rows)
            or name not in begun
            or forms[name] <= MANY
            or in_sample(item.nodeid, one_in)
        ):
            kept.append(item)
        begun.add(name)
    for test in {test for item in kept if hasattr(test := getattr(item, "obj", None), SETTINGS)}:
        own = getattr(test, SETTINGS)
        vars(test)[SETTINGS] = settings(own, max_examples=max(3, own.max_examples // one_in))
    return kept


INSTALLED = {"ollama", "vllm", "chromium", "redis", "bubblewrap", "swebench", "ray", "templates", "models", "oracle"}
"""Marks of tests that may have something installed while they run."""
PATIENT = (
    ("promptools.exchange.detection", "PROBE_TIMEOUT"),
    ("promptools.exchange.learning", "LEARN_TIMEOUT"),
    ("promptools.proxy.operations", "PROBE_TIMEOUT"),
    ("promptools.proxy.model_directory", "LEARN_TIMEOUT"),
    ("promptools.proxy.model_directory", "LIST_TIMEOUT"),
    ("promptools.transport.driver", "STALE_CONNECTION_SECONDS"),
)
"""Where a server is given up, or a connection taken for lost, after a second or two: a busy machine takes longer."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Give servers all the time, and spare the garbage collector what it would look through again and again for
    nothing: the many thousand tests, and the objects of a text that is still being read.
    """
    for module, name in PATIENT:
        if module.rpartition(".")[0] in sys.modules:
            vars(importlib.import_module(module))[name] = 300.0
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20)  # by default it looks at the youngest objects after each 700


@pytest.fixture
def share(request: pytest.FixtureRequest) -> Callable[[Iterable[T]], list[T]]:
    """Of what a test goes through itself: all of it, or with `--sample` one in four, by the place alone."""
    one_in = min(request.config.getvalue("sample"), 4)
    return lambda items: [item for number, item in enumerate(items) if in_sample(str(number), one_in)]


@pytest.fixture
def quick_to_make(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let HTTP clients of tests with llama.cpp load one certificate: all of them take twenty milliseconds each time.

    Every test with the mark `e2e` has it first. Tests with `upstream.running()` do so, too. Those that install
    something need the certificates.
    """
    if {mark.name for mark in request.node.iter_markers()} & INSTALLED:
        yield
        return
    from upstream import few_certificates

    with few_certificates():
        yield


@pytest.fixture
def little_to_collect() -> None:
    """Have the collector look through what comes from now on only: the whole takes a tenth of a second each time."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Tell the process that shows the results of each test once, and of what comes before and after it only where that
    fails: of tens of thousands, each said three times with all its keywords, it takes half a minute.
    """
    if not hasattr(item.config, "workerinput"):  # of pytest-xdist
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            report.keywords = {}
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Fail what compares with openai-harmony and does not say so: where its vocabulary is, it would not be run."""
    report: Any = yield
    if report.skipped and NO_ORACLE in str(report.longrepr) and item.get_closest_marker("oracle") is None:
        report.outcome, report.longrepr = "failed", "it needs openai-harmony: mark it `oracle`"
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Warn of tests that had nothing to compare with: a skip among hundreds of passes is easily missed."""
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    missed = [reason for reason in skipped if NO_ORACLE in reason]
    if missed:
        why = missed[0].partition(f"{NO_ORACLE}: ")[2].rstrip("')")
        terminalreporter.write_line(
            f"WARNING: {len(missed)} tests compared nothing with openai-harmony: {why}", yellow=True
        )
