"""The summary that `promptools serve` prints when it starts: the servers, whether they answer, and the modes in use."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from promptools.cli.detect_command import detect_server
from promptools.cli.terminal_output import print_progress
from promptools.profiles import load_builtin
from promptools.profiles.profile import GENERIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptools.profiles import Target
    from promptools.proxy import Proxy
    from promptools.proxy.routing import Replica, RoutedProvider, RouteTable
    from promptools.types import ServerInfo


def print_servers(proxy: Proxy, say: Callable[[str], None]) -> None:
    """Print where requests go. Unless detection is off, also print what the servers are and whether they answer."""
    if proxy.served.table is not None:
        _print_table(proxy, proxy.served.table, say)
        return
    say(f"forwarding to {proxy.base_url}")
    if proxy.session.detect:
        cache = proxy.session.context.detection_cache
        _, seen = detect_server(proxy.base_url, proxy.target.model, proxy.authorization, cache)
        target = _resolve(proxy, proxy.base_url, proxy.session.provider, seen)
        answers = "it answers" if seen.answered else "it does not answer yet; requests fail until it does"
        say(f"server: {_titled(target, seen, answers)}")
        _warn_of_other_kind(target, seen)
        say(f"modes: {_modes(proxy, target)}{f' (for {target.model})' if target.model else ''}")


def _print_table(proxy: Proxy, table: RouteTable, say: Callable[[str], None]) -> None:
    """Print a line for each provider, and a line for each name in `[proxy.models]`."""
    pairs = [(routed, replica) for routed in table.providers.values() for replica in routed.replicas]
    servers = _detect_all(proxy, pairs) if proxy.session.detect else [None for _ in pairs]
    for routed in table.providers.values():
        say(
            _describe(proxy, routed, [info for (owner, _), info in zip(pairs, servers, strict=True) if owner is routed])
        )
    for name, entries in table.models.items():
        say(f"model {name}: {', then '.join(entries)}")


def _detect_all(proxy: Proxy, pairs: list[tuple[RoutedProvider, Replica]]) -> list[ServerInfo | None]:
    """Detect the servers at all addresses at the same time.

    The result for an address is None if its provider turns detection off. Providers with different settings may share a
    server. The server is then asked once for each model and key.
    """
    questions = [_question(proxy, *pair) for pair in pairs]
    different = [question for question in dict.fromkeys(questions) if question is not None]

    def detect(question: tuple[str, str, str | None]) -> ServerInfo:
        base_url, model, authorization = question
        return detect_server(base_url, model, authorization, proxy.session.context.detection_cache)[1]

    with ThreadPoolExecutor(max(1, len(different))) as pool:
        servers = dict(zip(different, pool.map(detect, different), strict=True))
    return [None if question is None else servers[question] for question in questions]


def _question(proxy: Proxy, routed: RoutedProvider, replica: Replica) -> tuple[str, str, str | None] | None:
    """Return the URL, the model and the key for detecting a server; None if the provider turns detection off."""
    if routed.provider.detect is False:
        return None
    model = proxy.session.resolve_target(None, provider=routed.name).model
    return replica.address.base_url, model, replica.authorization


def _describe(proxy: Proxy, routed: RoutedProvider, servers: list[ServerInfo | None]) -> str:
    """Return the line about a provider.

    The line describes the first server that answers, or the first server if none does.
    """
    addresses = " and ".join(replica.address.base_url for replica in routed.replicas)
    line = f"provider {routed.name}{' (default)' if routed.is_default else ''}: {addresses}"
    known = [info for info in servers if info is not None]
    if not known:
        return line
    answering = [info for info in known if info.answered]
    seen = (answering or known)[0]
    target = _resolve(proxy, routed.replicas[0].address.base_url, routed.name, seen)
    _warn_of_other_kind(target, seen, f"provider {routed.name}: ")
    if len(known) > 1:
        answers = f"{len(answering)} of {len(known)} answer"
    else:
        answers = "it answers" if answering else "it does not answer yet"
    return f"{line}; {_titled(target, seen, answers)}; modes: {_modes(proxy, target)}"


def _resolve(proxy: Proxy, base_url: str, provider: str | None, seen: ServerInfo) -> Target:
    """Return the server and the settings that requests would use.

    `seen` is what detection found. It is used only if requests to the server would use detection too.
    """
    resolve = partial(proxy.session.resolve_target, None, base_url=base_url, provider=provider)
    target = resolve()
    return target if target.probe is None else resolve(detection=seen)


def _titled(target: Target, seen: ServerInfo, answers: str) -> str:
    """Return what a server is and whether it answers. A server is called unknown only if it has answered."""
    kind = target.profile.kind
    if kind == GENERIC:
        return f"unknown kind of server; {answers}" if seen.answered else answers
    version = f" {seen.version}" if seen.version and seen.kind == kind else ""
    return f"{load_builtin(kind).title}{version}; {answers}"


def _modes(proxy: Proxy, target: Target) -> str:
    options = proxy.session.context.options
    return ", then ".join((options.mode,) if options and options.mode else target.profile.modes)


def _warn_of_other_kind(target: Target, seen: ServerInfo, prefix: str = "") -> None:
    kind = target.profile.kind
    if not seen.answered or seen.kind in {None, kind}:
        return
    settings = f"the settings say {kind}"
    if kind == GENERIC:
        settings = f'requests take it for {kind}; to use what is known of {seen.kind}, set kind = "{seen.kind}"'
    print_progress(f"warning: {prefix}the server says that it is {seen.kind}, {settings}")
