"""Real servers, each started when a test first asks for it, and promptools before them: in the client or as a proxy."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asking
import httpx
import openai
import pytest
import rig_ollama
import rig_vllm
from asked import Asked, cases, planned
from asking import FORMS, Got, Proxies
from clients import Clients
from configs import default_config
from one_process import scope_of
from rigs import Servers

from promptools.client import OpenAI
from promptools.lab.server_process import Server

Connect = Callable[..., openai.OpenAI]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)
        if item.get_closest_marker("vllm") and rig_vllm.server_of(item.nodeid) is None:
            raise pytest.UsageError(f"{item.nodeid} must name its vLLM in a parameter: it is told apart by its id")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Have each vLLM asked by one process, for its boot is long, and each Ollama that some tests have to themselves.

    The rows of each of Ollama's models, too: what one test asked another need not ask again. `--dist loadgroup` asks
    for this.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByServer(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return rig_vllm.server_of(nodeid) or rig_ollama.scope_of(nodeid) or scope_of(nodeid)

    return ByServer(config, log)


@pytest.fixture(scope="session")
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    running = Servers(tmp_path_factory.mktemp, rig_vllm.Progress(request.config).show)
    running.begin(rig_vllm.wanted(request.session.items))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def harmony_server(servers: Servers) -> Server:
    return servers["llamacpp-harmony"]


@pytest.fixture(scope="session")
def hermes_server(servers: Servers) -> Server:
    return servers["llamacpp-hermes"]


@pytest.fixture(scope="session")
def plain_server(servers: Servers) -> Server:
    return servers["llamacpp-plain"]


@pytest.fixture(scope="session")
def ollama(servers: Servers) -> Server:
    """The Ollama of all tests that do it no harm; its models are named after their kinds."""
    return servers.host("ollama")


@pytest.fixture(scope="session")
def http() -> Iterator[httpx.Client]:
    # a connection for each request: a server that closes an idle one may do so as the next request comes
    limits = httpx.Limits(max_keepalive_connections=0)
    with httpx.Client(timeout=300, trust_env=False, limits=limits) as client:
        yield client


@pytest.fixture(scope="session")
def proxies() -> Iterator[Proxies]:
    running = Proxies()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def clients(
    request: pytest.FixtureRequest, servers: Servers, proxies: Proxies, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clients]:
    made = Clients(servers, proxies, tmp_path_factory.mktemp, cases(request.session.items))
    yield made
    made.close()


@pytest.fixture(scope="session")
def asked(clients: Clients, servers: Servers, request: pytest.FixtureRequest) -> Iterator[Asked]:
    answers = Asked(clients, servers, planned(request.session.items))
    yield answers
    answers.close()


@pytest.fixture(params=["client", "proxy"])
def connect(request: pytest.FixtureRequest, proxies: Proxies) -> Iterator[Connect]:
    """Make a client whose requests go through promptools: the transport inside it, or a proxy before the server."""
    made: list[openai.OpenAI] = []
    own: list[str] = []

    def make(server: Server, *, fresh: bool = False, kind: str = "llamacpp") -> openai.OpenAI:
        if request.param == "client":
            client: openai.OpenAI = OpenAI(config=default_config(server, kind), max_retries=0, timeout=300)
        else:
            url = (proxies.fresh if fresh else proxies.before)(server.base_url, kind)
            own.extend([url] * fresh)
            client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=300)
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()
    for url in own:
        proxies.end(url)


@pytest.fixture(params=FORMS)
def ask(request: pytest.FixtureRequest) -> Callable[..., Got]:
    """Ask through a client of the official SDK, with a trace, and gather the answer."""

    def put(client: openai.OpenAI, model: str, *said: Any, options: dict[str, Any] | None = None, **keys: Any) -> Got:
        messages = [{"role": "user", "content": each} if isinstance(each, str) else each for each in said]
        body = {"promptools": {"trace": True, **(options or {})}}
        return asking.ask(client, model, messages, request.param, extra_body=body, **keys)

    return put
