"""Families whose calls are JSON between markers and nothing more, declared by their markers with their sources."""

from __future__ import annotations

from functools import partial
from typing import Final

from promptools.dialects.readers.json_block.marked_json import MarkedJson
from promptools.dialects.readers.json_block.named_marker_json import NamedMarkerJson

granite: Final = partial(
    MarkedJson,
    "granite",
    {"<|tool_call|>": ""},  # Granite 3.0 to 3.3: the list's bracket is the closer
    also=("<|/tool_call|>",),  # Phi-4-mini's own template closes it
    models="Granite 3.0 to 3.3",
    tier="S",
    shape="list",
    answer_tags={"<response>": "</response>"},  # Granite 3.3, as Ernie 4.5, when it thinks
)
phi4: Final = partial(
    MarkedJson,
    "phi4",
    {"functools": ""},  # Phi-4-mini model card, 2025-02
    models="Phi-4-mini",
    shape="list",
    opens="[",
    result='{"result": {json}}',
)
firefunction: Final = partial(
    MarkedJson,
    "firefunction",
    {"functools": ""},  # Firefunction v2 model card, 2024-06
    models="Firefunction v2",
    shape="list",
    opens="[",
    asked=True,  # the same marker as Phi-4-mini's
)
jamba: Final = partial(
    MarkedJson,
    "jamba",
    {"<tool_calls>": "</tool_calls>"},  # Jamba 1.5 model card, 2024-08; Hunyuan-A13B, 2025-06; Apriel 1.5
    models="Jamba 1.5 and later, Hunyuan-A13B, Apriel 1.5",
    shape="list",
    space="\n",
    answer_tags={
        "[BEGIN FINAL RESPONSE]": "[END FINAL RESPONSE]",  # Apriel
        "<answer>": "</answer>",  # Hunyuan A13B, when it thinks
        "助手：": "",  # "assistant:", Hunyuan A13B
    },
)
minimax_m1: Final = partial(
    MarkedJson,
    "minimax_m1",
    {"<tool_calls>": "</tool_calls>"},  # MiniMax-M1, docs/function_call_guide.md, 2025-06
    models="MiniMax M1",
    shape="lines",
    space="\n",
    asked=True,  # the same markers as Jamba's
    result="tool result: {content}",
)
internlm2: Final = partial(
    MarkedJson,
    "internlm2",
    # InternLM2 chat format, agent.md, 2024-01; detokenizers put a space between the tokens, models a line break
    {f"<|action_start|>{space}<|plugin|>": "<|action_end|>" for space in ("", " ", "\n")},
    models="InternLM2, InternLM2.5, InternLM3, Intern-S1",
    tier="S",
    arguments_key="parameters",
    space="\n",
)
cohere: Final = partial(
    MarkedJson,
    "cohere",
    {"<|START_ACTION|>": "<|END_ACTION|>"},  # chat templates of Command R7B (2024-12) and Command A (2025-03)
    models="Command R7B, Command A, Command A+",
    tier="S",
    shape="list",
    id_key="tool_call_id",
    name_key="tool_name",
    arguments_key="parameters",
    tools=("## Available Tools", ""),
    result='{"tool_call_id": "{id}", "results": {"0": {"content": {json}}}, "is_error": null}',
    results=("<|START_TOOL_RESULT|>[", ", ", "]<|END_TOOL_RESULT|>"),  # one list for a turn, so in Ollama 0.32 as well
    stop=("<|END_ACTION|>",),
    reasoning_tags={"<|START_THINKING|>": "<|END_THINKING|>"},
    answer_tags={
        "<|START_RESPONSE|>": "<|END_RESPONSE|>",
        "<|START_TEXT|>": "<|END_TEXT|>",  # since 2026
    },
    result_openers=("<|START_TOOL_RESULT|>",),
    end_tokens=("<|END_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"),
)
nemotron: Final = partial(
    MarkedJson,
    "nemotron",
    {"<TOOLCALL>": "</TOOLCALL>"},  # chat templates of Llama-Nemotron (2025-03) and Nemotron Nano v2 (2025-08)
    models="Llama-Nemotron, Nemotron Nano v2",
    shape="list",
    tools=("<AVAILABLE_TOOLS>[", ", ", "]</AVAILABLE_TOOLS>"),
    result="{json}",
    results=("<TOOL_RESPONSE>[", ", ", "]</TOOL_RESPONSE>"),
    stop=("<TOOL_RESPONSE>",),
    result_openers=("<TOOL_RESPONSE>",),
)
apertus: Final = partial(
    MarkedJson,
    "apertus",
    {"<|tools_prefix|>": "<|tools_suffix|>"},  # chat template of Apertus, 2025-09
    models="Apertus",
    tier="S",
    shape="list",
    name_key="",
    reasoning_tags={"<|inner_prefix|>": "<|inner_suffix|>"},
    end_tokens=("<|assistant_end|>",),
)
hyperclova: Final = partial(
    MarkedJson,
    "hyperclova",
    # chat template of HyperCLOVA X SEED Think, 2025-07; the role's name is what is left of the header
    {"-> tool/function_call": "", "assistant -> tool/function_call": ""},
    models="HyperCLOVA X SEED",
    shape="list",
    space="\n",
    opens="[",
)
exaone: Final = partial(
    MarkedJson,
    "exaone",
    {"<tool_call>": "</tool_call>"},  # chat template of EXAONE 4.0, 2025-07
    models="EXAONE 4.0",
    asked=True,  # the same markers as those of Hermes
    tools=("<tool>", "</tool>\n<tool>", "</tool>"),
    result="<tool_result>{content}</tool_result>",
    stop=("<tool_result>",),
    result_openers=("<tool_result>",),
    end_tokens=("[|endofturn|]",),
)
longcat: Final = partial(
    MarkedJson,
    "longcat",
    {"<longcat_tool_call>": "</longcat_tool_call>"},  # chat template of LongCat-Flash, 2025-09
    models="LongCat Flash",
    tier="S",
    space="\n",
)
solar: Final = partial(
    NamedMarkerJson,
    "solar",
    models="Solar Open",
    before=("<|tool_call:begin|>{id}<|tool_call:name|>", "<|tool_call:begin|><|tool_call:name|>"),
    between="<|tool_call:args|>",
    after="<|tool_call:end|>",
    result="<|tool_response:id|>{id}<|tool_response:name|>{name}<|tool_response:result|>{content}<|tool_response:end|>",
    result_openers=("<|tool_response:",),
)
plamo: Final = partial(
    NamedMarkerJson,
    "plamo",
    models="PLaMo 3",
    before=("<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>", "<|plamo:begin_tool_name:plamo|>"),
    between="<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>",
    optional_token="<|plamo:constrain|>json<|plamo:msg|>",
    after="<|plamo:end_tool_arguments:plamo|>",
    tail="<|plamo:end_tool_request:plamo|>",
    wrapper=("<|plamo:begin_tool_requests:plamo|>", "<|plamo:end_tool_requests:plamo|>"),
    reasoning_tags={"<|plamo:begin_think:plamo|>": "<|plamo:end_think:plamo|>"},
    end_tokens=("<|plamo:tag|>",),
)
