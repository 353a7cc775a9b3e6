"""Names that models have in the world, the family that each finds, and the dialect that prompt mode then speaks."""

from __future__ import annotations

import re

import pytest

from promptools import resolve
from promptools.profiles import families

NAMES: dict[tuple[str | None, str], str] = {
    ("apertus", "json"): "swiss-ai/Apertus-70B-Instruct-2509",
    ("apriel", "jamba"): "ServiceNow-AI/Apriel-1.5-15b-Thinker",
    ("cogito", "json"): "deepcogito/cogito-v2-preview-llama-70B cogito:14b",
    ("cohere", "json"): """CohereLabs/command-a-03-2025 CohereLabs/command-a-reasoning-08-2025 command-r7b:7b
        CohereLabs/c4ai-command-r7b-12-2024 CohereLabs/North-Mini-Code-1.0 CohereLabs/c4ai-command-a-03-2025""",
    ("command-r", "command_r"): """CohereForAI/c4ai-command-r-v01 command-r:35b command-r-plus:104b
        CohereLabs/c4ai-command-r-plus-08-2024""",
    ("cwm", "cwm"): "facebook/cwm facebook/cwm-sft cwm:32b",
    ("deepseek", "json"): """deepseek-ai/DeepSeek-V3 deepseek-v3.1:671b deepseek-ai/DeepSeek-V3.2-Exp deepseek-v4-flash
        deepseek-ai/DeepSeek-R1-0528-Qwen3-8B deepseek-r1:8b-0528-qwen3-q4_K_M accounts/fireworks/models/deepseek-v3p1
        deepseek-chat deepseek-ai/DeepSeek-R1-0528""",
    ("deepseek-r1", "json"): """deepseek-ai/DeepSeek-R1 deepseek-r1:7b DeepSeek-R1-Distill-Qwen-7B-Q4_K_M.gguf
        deepseek-ai/DeepSeek-R1-Distill-Llama-70B deepseek-ai/DeepSeek-R1-Distill-Qwen-32B""",
    ("dots", "json"): "rednote-hilab/dots.llm1.inst",
    ("exaone4", "exaone"): "LGAI-EXAONE/EXAONE-4.0-32B LGAI-EXAONE/EXAONE-4.0.1-32B exaone4:32b",
    ("firefunction", "firefunction"): "fireworks-ai/llama-3-firefunction-v2 firefunction-v2:70b",
    ("functionary", "functionary"): "meetkai/functionary-small-v3.2 functionary-medium-v3.2.Q4_0.gguf",
    ("functionary-early", "json"): "meetkai/functionary-medium-v3.1 meetkai/functionary-7b-v2",
    ("gemma", "json"): """google/gemma-2-9b-it gemma2:27b google/gemma-1.1-7b-it gemma-7b-it.Q4_K_M.gguf gemma gemma:2b
        google/gemma-7b-it""",
    ("gemma3", "json"): """google/gemma-3-27b-it gemma3:4b gemma3n:e4b google/gemma-3n-E4B-it google/medgemma-4b-it
        google/medgemma-27b-text-it google/gemma-3-270m-it google/translategemma-27b-it""",
    ("gemma4", "json"): "google/gemma-4-E4B-it gemma4:31b google/functiongemma-270m-it",
    ("gigachat3", "json"): "ai-sage/GigaChat3-10B-A1.8B ai-sage/GigaChat3.1-702B-A36B",
    ("glm", "glm"): """zai-org/GLM-4.5-Air zai-org/GLM-4.7-Flash glm-4.6:cloud zai-org/GLM-5
        zai-org/GLM-5.3-Flash glm-5.3-flash:cloud
        accounts/fireworks/models/glm-4p6""",
    ("gorilla", "gorilla"): "gorilla-llm/gorilla-openfunctions-v2",
    ("gpt-oss", "json"): """openai/gpt-oss-20b gpt-oss:120b-cloud gpt-oss-20b-mxfp4.gguf openai/gpt-oss-safeguard-20b
        openai/gpt-oss-120b gpt-oss:20b""",
    ("granite-functioncalling", "json"): "ibm-granite/granite-20b-functioncalling",
    ("granite3", "json"): "ibm-granite/granite-3.3-8b-instruct granite3.3:8b granite3-dense:2b granite3.1-moe:3b",
    ("granite4", "hermes"): "ibm-granite/granite-4.0-h-small granite4:micro-h ibm-granite/granite-4.1-8b",
    ("hermes", "hermes"): """NousResearch/Hermes-2-Pro-Llama-3-8B NousResearch/Hermes-2-Theta-Llama-3-8B hermes3:8b
        NousResearch/Hermes-3-Llama-3.1-8B NousResearch/Hermes-4-14B NousResearch/Hermes-4.3-36B
        NousResearch/DeepHermes-3-Mistral-24B-Preview adrienbrault/nous-hermes2pro:7b HuggingFaceTB/SmolLM3-3B
        tiiuae/Falcon-H1-7B-Instruct speakleash/Bielik-11B-v3.0-Instruct baidu/ERNIE-4.5-21B-A3B-Thinking
        XiaomiMiMo/MiMo-VL-7B-RL RekaAI/reka-edge-2603 arcee-ai/Trinity-Mini OpenGVLab/InternVL3_5-8B
        Groq/Llama-3-Groq-8B-Tool-Use llama3-groq-tool-use:8b NousResearch/Hermes-2-Pro-Mistral-7B""",
    ("hunyuan", "hunyuan"): "tencent/Hy3-preview hy4",
    ("hunyuan-a13b", "jamba"): "tencent/Hunyuan-A13B-Instruct",
    ("hyperclova", "json"): "naver-hyperclovax/HyperCLOVAX-SEED-Think-14B",
    ("inkling", "json"): "thinkingmachines/Inkling",
    ("internlm", "json"): "internlm/internlm2_5-7b-chat internlm2:7b internlm/internlm3-8b-instruct internlm/Intern-S1",
    ("iquest", "iquest"): "IQuestLab/IQuest-Coder-V1-40B-Instruct",
    ("jamba", "json"): "ai21labs/AI21-Jamba-1.5-Mini ai21labs/AI21-Jamba-Large-1.7 ai21labs/AI21-Jamba-Reasoning-3B",
    ("k2-horizon", "k2_horizon"): "LLM360/K2-Horizon",
    ("kimi", "json"): """moonshotai/Kimi-K2-Instruct-0905 moonshotai/Kimi-K2-Thinking moonshotai/Kimi-K2.5
        kimi-k2:1t-cloud moonshotai/Kimi-K3 moonshotai/Kimi-Linear-48B-A3B-Instruct""",
    ("laguna", "laguna"): "poolside/Laguna-XS.2 laguna-m.1",
    ("lfm2", "pythonic"): "LiquidAI/LFM2-1.2B-Tool LiquidAI/LFM2.5-1.2B-Instruct lfm2.5-thinking",
    ("ling3", "glm"): "inclusionAI/Ling-3.0-flash",
    ("llama", "llama3_json"): """meta-llama/Llama-3.3-70B-Instruct meta-llama/Meta-Llama-3-8B-Instruct llama3.1:8b
        llama3:8b llama3.2-vision:11b accounts/fireworks/models/llama-v3p3-70b-instruct meta.llama3-1-70b-instruct-v1:0
        nvidia/Llama-3.1-Nemotron-70B-Instruct-HF nemotron:70b""",
    ("llama-pythonic", "pythonic"): """meta-llama/Llama-4-Scout-17B-16E-Instruct llama4:maverick llama3.2
        llama3.2:latest meta-llama/Llama-3.2-3B-Instruct llama3.2:1b Team-ACE/ToolACE-2-Llama-3.1-8B
        watt-ai/watt-tool-8B accounts/fireworks/models/llama-v3p2-3b-instruct llama3.2:3b""",
    ("llama2", "json"): "meta-llama/Llama-2-7b-chat-hf llama2:13b codellama:7b",
    ("longcat", "longcat"): "meituan-longcat/LongCat-Flash-Chat",
    ("minicpm", "json"): "openbmb/MiniCPM5-1B",
    ("minimax", "json"): "MiniMaxAI/MiniMax-M1-80k MiniMaxAI/MiniMax-Text-01",
    ("minimax-m2", "minimax"): "MiniMaxAI/MiniMax-M2 minimax-m2.1:cloud MiniMax-M2.5",
    ("minimax-m3", "json"): "MiniMaxAI/MiniMax-M3",
    ("mistral", "json"): """mistralai/Mistral-7B-Instruct-v0.3 mistral:7b mistral-nemo mixtral:8x22b devstral:24b
        mistralai/Mistral-Small-3.2-24B-Instruct-2506 mistralai/Magistral-Small-2509 ministral-3:8b codestral-latest
        mistralai/Devstral-2-123B-Instruct-2512 voxtral-small:24b teknium/OpenHermes-2.5-Mistral-7B
        mistralai/Devstral-Small-2507""",
    ("mistral-early", "json"): """mistralai/Mistral-7B-Instruct-v0.2 mistralai/Mixtral-8x7B-Instruct-v0.1 mixtral:8x7b
        mistral:7b-instruct-v0.2-q4_0 mistral-7b-instruct-v0.1.Q5_K_M.gguf""",
    ("muse", "json"): "meta/Muse-Glimmer",
    ("nemotron", "nemotron"): """nvidia/Llama-3_3-Nemotron-Super-49B-v1_5 nvidia/Llama-3.1-Nemotron-Nano-8B-v1
        nvidia/NVIDIA-Nemotron-Nano-9B-v2 nvidia/Llama-3_1-Nemotron-Ultra-253B-v1 nemotron-nano-v2""",
    ("nexusraven", "nexusraven"): "Nexusflow/NexusRaven-V2-13B nexusraven:13b",
    ("olmo3", "olmo3"): "allenai/Olmo-3-7B-Instruct allenai/Olmo-3.1-32B-Think olmo-3:32b",
    ("pangu", "json"): """FreedomIntelligence/openPangu-Embedded-7B openPangu-Embedded-1B-V1.1
        ascend-tribe/openpangu-embedded-7b-model""",
    ("phi", "json"): "microsoft/phi-4 phi4:14b microsoft/Phi-3.5-mini-instruct phi3:mini phi4-reasoning",
    ("phi4-mini", "phi4"): "microsoft/Phi-4-mini-instruct phi4-mini:3.8b",
    ("plamo3", "json"): "pfnet/plamo-3-nict-8b-base",
    ("qwen", "hermes"): """Qwen/Qwen2.5-7B-Instruct qwen2.5:7b Qwen/Qwen2.5-VL-7B-Instruct Qwen2_5-14B Qwen/Qwen3-8B
        qwen3:14b qwen3-vl:8b Qwen/Qwen3-Next-80B-A3B-Instruct Qwen/Qwen3-Omni-30B-A3B-Instruct qwen/qwen3-8b@q4_k_m""",
    ("qwen-early", "qwen_agent"): "Qwen/Qwen1.5-7B-Chat Qwen/Qwen2-7B-Instruct qwen2:7b qwen:7b",
    ("qwen-thinking", "hermes"): """Qwen/QwQ-32B qwq:32b Qwen/Qwen3-30B-A3B-Thinking-2507
        qwen3:30b-a3b-thinking-2507-q4_K_M""",
    ("qwen2.5-coder", "json"): "Qwen/Qwen2.5-Coder-7B-Instruct qwen2.5-coder:7b-instruct-q4_K_M",
    ("qwen3-coder", "qwen3_coder"): """Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8 qwen3-coder:30b Qwen/Qwen3-Coder-Next
        Qwen/Qwen3.5-35B-A3B qwen3.5:35b Qwen/Qwen3.6-27B nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16
        nemotron-3-super:120b stepfun-ai/Step-3.5-Flash step3.5 XiaomiMiMo/MiMo-V2-Flash Nanbeige/Nanbeige4-3B
        LGAI-EXAONE/K-EXAONE-236B-A23B Qwen/Qwen3-Coder-30B-A3B-Instruct""",
    ("rwkv", "rwkv"): "BlinkDL/rwkv7-g1 mollysama/rwkv-7-g1:2.9b RWKV/RWKV7-Goose-World3-2.9B-HF",
    ("seed-oss", "seed_oss"): "ByteDance-Seed/Seed-OSS-36B-Instruct",
    ("solar-open", "json"): "upstage/Solar-Open-100B",
    ("solar-open2", "json"): "upstage/Solar-Open-2-250B upstage/Solar-Open2-100B",
    ("spark", "glm"): "iflytek/Spark-2.5",
    ("step-audio", "step_audio"): "stepfun-ai/Step-Audio-2-mini stepfun-ai/Step-Audio-2-mini-Think",
    ("step3", "json"): "stepfun-ai/step3",
    ("telechat", "telechat"): """Tele-AI/TeleChat3-36B-Thinking Tele-AI/TeleChat3-105B-A4.7B-Thinking
        Tele-AI/TeleChat4-36B Tele-AI/Xing-4.0 xing-4.0-flash""",
    ("xlam", "xlam"): "Salesforce/Llama-xLAM-2-8b-fc-r Salesforce/xLAM-7b-fc-r",
    (None, "json"): """my-model gpt-4o nous-hermes2 THUDM/glm-4-9b-chat speakleash/Bielik-11B-v2.3-Instruct solar:10.7b
        LLM360/K2-Think inclusionAI/Ling-1T upstage/SOLAR-10.7B-Instruct-v1.0 nemotron-mini pfnet/plamo-2-8b
        Tele-AI/TeleChat2-7B BlinkDL/rwkv-6-world stepfun-ai/Step-Audio-Chat boxing-4b""",
}
ALL = [(name, *found) for found, names in NAMES.items() for name in names.split()]


@pytest.mark.parametrize(("name", "family", "dialect"), ALL)
def test_a_name_finds_its_family_and_its_dialect(name: str, family: str | None, dialect: str) -> None:
    profile = resolve(name).profile
    assert (profile.family, profile.dialect) == (family, dialect)


def test_every_family_is_found_by_a_name() -> None:
    assert {family for family, _ in NAMES if family} == set(families())


def spellings(name: str) -> list[str]:
    """Spell a repository's name as servers do: a file, a path, a quantisation, another case."""
    base = name.rpartition("/")[2]
    return [
        name.lower(),
        name.upper(),
        base,
        f"{name.replace('/', '_')}-Q4_K_M.gguf",
        f"/models/{base}.Q8_0.gguf",
        f"hf.co/unsloth/{base}-GGUF:UD-Q4_K_XL",
        f"{base.lower()}@q4_k_m",
        f"models--{name.replace('/', '--')}",
        base.replace("-", "_"),
        base.replace("-", " "),
    ]


REPOSITORIES = [(name, family) for name, family, _ in ALL if re.fullmatch(r"[\w-]+/[\w.-]+", name)]


@pytest.mark.parametrize(("name", "family"), REPOSITORIES)
def test_a_repository_is_known_however_it_is_spelled(name: str, family: str | None) -> None:
    assert {spelled: resolve(spelled).profile.family for spelled in spellings(name)} == dict.fromkeys(
        spellings(name), family
    )
