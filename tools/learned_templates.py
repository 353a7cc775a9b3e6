"""Write docs/reference/learned.md: what is learned from every chat template available: `make results-learned`.

    python tools/learned_templates.py [FOLDER]

The templates are those of the environment `all-templates`, or of a folder. If the package has a dialect of the family,
the family's cases in tests/cases are read with the learned table instead.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Final

import environments
from learned_cases import NAME, Changed, Shared, changed, family_cases, shared

from promptools import UsageError
from promptools.learning import Learned, learn
from promptools.learning.candidates import ONE
from promptools.learning.renderings import VARIANTS, Renderings
from promptools.learning.validation import trial_tools
from promptools.modes.jinja_template import jinja_renderer

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "learned.md"
TOKENS: Final = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
FAMILIES: Final = {
    "Apertus": "apertus", "tool_chat_template_apertus": "apertus", "ByteDance": "seed_oss",
    "Cohere2MoE": "cohere", "CohereForAI-c4ai-command-r7b": "cohere", "CohereForAI-c4ai-command-r-plus": "command_r",
    "GLM": "glm", "inclusionai-ling": "glm", "Spark": "glm", "GigaChat": "gigachat", "Kimi-K2": "kimi_k2",
    "moonshotai-Kimi-K2": "kimi_k2", "LFM2": "lfm2", "MiniMax-M1": "minimax_m1", "MiniMax-M2": "minimax",
    "MiniMax-M3": "minimax_m3", "mistralai-M": "mistral", "Mistral": "mistral", "unsloth-mistral": "mistral",
    "tool_chat_template_mistral": "mistral", "NVIDIA-Nemotron-Nano": "nemotron", "Nous": "hermes", "MiMo-VL": "hermes",
    "Qwen-Q": "hermes", "tool_chat_template_hermes": "hermes", "ibm-granite-granite-4": "hermes",
    "Bielik": "hermes", "Reka": "hermes", "NVIDIA-Nemotron-3": "qwen3_coder", "Qwen3": "qwen3_coder",
    "StepFun3.5": "qwen3_coder", "tool_chat_template_qwen3coder": "qwen3_coder", "deepseek-ai-DeepSeek-R1": "deepseek",
    "deepseek-ai-DeepSeek-V3.1": "deepseek", "deepseek-ai-DeepSeek-V": "dsml", "llama-cpp-deepseek": "deepseek",
    "tool_chat_template_deepseek": "deepseek", "fireworks": "firefunction", "google-gemma-4": "gemma4",
    "tool_chat_template_gemma4": "gemma4", "tool_chat_template_functiongemma": "functiongemma",
    "meetkai-functionary-medium-v3.2": "functionary", "meta-llama": "llama3_json", "openbmb-MiniCPM5": "minicpm",
    "poolside": "laguna", "tencent": "hunyuan", "tool_chat_template_granite": "granite",
    "tool_chat_template_hunyuan": "hunyuan", "tool_chat_template_internlm2": "internlm2",
    "tool_chat_template_llama": "llama3_json", "tool_chat_template_xlam": "xlam", "upstage": "solar",
    "Kimi-K3": "kimi_k3", "muse": "muse", "tool_chat_template_muse": "muse", "openai": "harmony",
}  # fmt: skip
"""The dialect of each family of templates, by the beginning of the names of their files."""
HEAD: Final = """# What is learned from chat templates

<!-- made by `make results-learned` -->

Each template that llama.cpp ships (in the source distribution of llama-cpp-python {llama}), and each of vLLM {vllm}'s
examples for tool calls, [learned](../why/learned-dialects.md) with no knowledge of its family. "Read" are the calls
that were read back, whole and in pieces, "written" those that the table writes as the template does, white space aside;
"otherwise" those with markup or the look of another type in a text, which the table writes in another way.

"Shared" are the cases that follow from any format and its tier (`tests/helpers/shared_cases.py`: missing closers, cut
replies, wrong arguments, examples in prose), read whole and in pieces with the table alone; the whole reply counts.
"Changed" are the texts that are read otherwise once the table is registered beside all dialects of the package, in
which case it is searched for first: of {texts} or more, the cases of all other families and prose around a call of
each. The first number counts those that had no call before, and have one, or a malformed one, then. Where the package
has a dialect of the family, the last column has how many of that family's cases in `tests/cases` the learned table
reads like them: what models write of which no template tells is what it lacks.
"""


NO_CASES: Final = Shared(0, 0, ())
NOTHING_READ: Final = Changed(0, 0, 0)
WIDTH: Final = 120
"""Characters of a line of the page."""
ENOUGH: Final = 98
"""Percent of the shared cases that a table should pass."""


@dataclass(frozen=True)
class Outcome:
    """The result for one template."""

    name: str
    learned: Learned | None
    why: str
    seconds: float
    renders_calls: bool = True
    """Whether the template writes calls at all."""
    cases: str = ""
    shared: Shared = NO_CASES
    changed: Changed = NOTHING_READ


def family_of(name: str) -> str:
    """Return the dialect of a template's family; empty if the package has none."""
    starts = [start for start in FAMILIES if name.startswith(start)]
    return FAMILIES[max(starts, key=len)] if starts else ""


def outcome_of(path: Path) -> Outcome:
    """Learn from one template."""
    name = path.stem
    started = time.process_time()
    try:
        render = jinja_renderer(path.read_text(encoding="utf-8"), special_tokens=TOKENS)
        learned = learn(render, name=NAME, special_tokens=TOKENS.values())
    except UsageError as error:
        why = str(error).removeprefix("No table of 'learned' could be learned from its template: ")
        return Outcome(name, None, why, time.process_time() - started, renders_calls(path))
    seconds = time.process_time() - started
    family = family_of(name)
    found = family_cases(learned, family)
    cases = "" if found is None else f"{found[0]} of {found[1]} of {family}"
    return Outcome(
        name, learned, "", seconds, cases=cases, shared=shared(learned, family), changed=changed(learned, family)
    )


def renders_calls(path: Path) -> bool:
    """Return whether a template writes the name and a value of a call in the history, in any form of the message."""
    renderings = Renderings(
        jinja_renderer(path.read_text(encoding="utf-8"), special_tokens=TOKENS), trial_tools(ONE), ()
    )
    asked = renderings.render([]) or renderings.render([], prompt=True) or ""
    texts = [renderings.of_calls([ONE], variant) or "" for variant in VARIANTS]
    return any(text.count(ONE.name) > asked.count(ONE.name) and "zq value" in text for text in texts)


def page(outcomes: Iterable[Outcome]) -> str:
    """Return the page."""
    from recipes import templates

    outcomes = sorted(outcomes, key=lambda outcome: outcome.name.lower())
    able = [outcome for outcome in outcomes if outcome.renders_calls]
    learned = [outcome for outcome in able if outcome.learned is not None]
    kinds = Counter(str(outcome.learned.table["kind"]) for outcome in learned if outcome.learned)
    share = 100 * len(learned) / max(len(able), 1)
    lines = [
        HEAD.format(
            llama=templates.VERSION, vllm=templates.VLLM_VERSION, texts=min(each.changed.total for each in learned)
        ),
        f"Of {len(outcomes)} templates {len(able)} write calls; {len(learned)} of these are learned, {share:.0f} %: "
        + ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
        + ".",
        "",
        fill(_of_shared(learned), WIDTH, break_on_hyphens=False),
        "",
        fill(_of_changed(learned), WIDTH, break_on_hyphens=False),
        "",
        "| template | kind | tier | read | written | otherwise | shared | changed | cases of its family |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *(_row(outcome, outcome.learned) for outcome in learned if outcome.learned),
        "",
        "## Not learned",
        "",
        "| template | why |",
        "| --- | --- |",
        *(f"| {each.name} | {_cell(each.why)} |" for each in able if each.learned is None),
        "",
        "## No calls",
        "",
        "These templates write no calls that are in the history: "
        + ", ".join(each.name for each in outcomes if not each.renders_calls)
        + ".",
    ]
    return "\n".join(lines) + "\n"


def _of_shared(learned: Sequence[Outcome]) -> str:
    """Return the text of the page about the shared cases."""
    passed = sum(each.shared.passed for each in learned)
    total = sum(each.shared.total for each in learned)
    below = [each for each in learned if 100 * each.shared.passed < ENOUGH * each.shared.total]
    failed = [f"{each.name} ({', '.join(each.shared.failed)})" for each in learned if each.shared.failed]
    text = (
        f"Of the shared cases {passed} of {total} pass, {100 * passed / total:.2f} %; at least {ENOUGH} % on"
        f" {len(learned) - len(below)} of the {len(learned)} tables."
    )
    return f"{text} Those that fail: {'; '.join(failed)}." if failed else text


def _of_changed(learned: Sequence[Outcome]) -> str:
    """Return the text of the page about the texts that are read differently."""
    without = sum(each.changed.prose + each.changed.calls == 0 for each in learned)
    certain = [each for each in learned if each.learned and each.learned.table["tier"] != "B"]
    prose = sum(each.changed.prose for each in certain)
    calls = sum(each.changed.calls for each in certain)
    total = sum(each.changed.total for each in certain)
    return (
        f"With {without} of the {len(learned)} tables registered no text is read otherwise. Only those of tiers S and A"
        f" are used without being asked for, and only for a model of no known family. Of {total} readings with these"
        f" {len(certain)} tables, {prose} have a call, or a malformed one, where there was none, and {calls} differ"
        " otherwise."
    )


def _row(outcome: Outcome, learned: Learned) -> str:
    numbers = [check.partition(" ")[0] for check in learned.checks]
    read, written, otherwise = (*numbers, "0")[:3]
    cells = (
        outcome.name,
        learned.table["kind"],
        learned.table["tier"],
        read,
        written,
        otherwise,
        f"{outcome.shared.passed} of {outcome.shared.total}",
        f"{outcome.changed.prose} and {outcome.changed.calls}",
        outcome.cases,
    )
    return f"| {' | '.join(map(str, cells))} |"


def _cell(text: str) -> str:
    """Return a text as one cell of a table: shortened, and with special characters escaped."""
    short = text if len(text) <= 200 else f"{text[:200]}…"
    return short.replace("\n", "\\n").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def main(folder: Path) -> None:
    """Write the page, and print the seconds that each template took."""
    outcomes = [outcome_of(path) for path in sorted(folder.glob("*.jinja"))]
    for outcome in outcomes:
        print(f"{outcome.seconds:5.2f} s  {'learned' if outcome.learned else 'not learned':11}  {outcome.name}")
    PAGE.write_text(page(outcomes), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else environments.path_of("all-templates"))
