"""One header, said in every way that was seen: who speaks, on which channel, to whom, in what form."""

import pytest

from promptools.harmony.messages import Header, parse_header
from promptools.harmony.tokens import HarmonyTokenizer

OFFERED = {"bash", "get_weather", "functions.get_weather", "jsonpath", "finalize"}
CALL = Header("assistant", "", "commentary", "functions.get_weather", "<|constrain|>json")


def read(text, role="assistant", known=OFFERED.__contains__, **options):
    scanner = HarmonyTokenizer()
    return parse_header([*scanner.feed(text), *scanner.close()], role, known, **options)


def routing(header):
    return (header.role, header.name, header.channel, header.recipient, header.content_type)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<|channel|>final", ("assistant", "", "final", "", "")),
        ("<|start|>assistant<|channel|>analysis", ("assistant", "", "analysis", "", "")),
        ("<|start|>user", ("user", "", "", "", "")),
        ("<|start|>user:ann", ("user", "ann", "", "", "")),
        ("<|start|>system", ("system", "", "", "", "")),
        ("<|start|>developer", ("developer", "", "", "", "")),
        ("<|channel|>commentary to=functions.get_weather <|constrain|>json", routing(CALL)),
        ("<|channel|>commentary to=functions.get_weather<|constrain|>json", routing(CALL)),
        ("<|start|>assistant to=functions.get_weather<|channel|>commentary<|constrain|>json", routing(CALL)),
        (" to=functions.get_weather<|channel|>commentary json", ("assistant", "", *routing(CALL)[2:4], "json")),
        ("<|channel|>analysis to=container.exec code", ("assistant", "", "analysis", "container.exec", "code")),
        ("<|channel|>final <|constrain|>response", ("assistant", "", "final", "", "<|constrain|>response")),
        (
            "<|start|>functions.get_weather to=assistant<|channel|>commentary",
            ("tool", "functions.get_weather", "commentary", "assistant", ""),
        ),
        (
            "<|start|>functions.get_weather<|channel|>commentary",
            ("tool", "functions.get_weather", "commentary", "", ""),
        ),
        ("<|start|>bash to=assistant<|channel|>commentary", ("tool", "bash", "commentary", "assistant", "")),
        ("<|start|>nobody to=assistant<|channel|>commentary", ("tool", "nobody", "commentary", "assistant", "")),
        ("<|channel|>final to=all", ("assistant", "", "final", "", "")),
    ],
)
def test_what_the_format_knows_needs_no_repair(text, expected):
    assert routing(read(text)) == expected
    assert read(text).repairs == ()


@pytest.mark.parametrize(
    ("text", "expected", "repairs"),
    [
        ("", ("assistant", "", "", "", ""), ["no channel"]),
        ("<|start|>", ("assistant", "", "", "", ""), ["nobody speaks", "no channel"]),
        ("<|start|>nobody<|channel|>final", ("assistant", "", "final", "", ""),
         ["unexpected 'nobody'", "nobody speaks"]),
        ("<|start|>bash<|channel|>commentary json", ("assistant", "", "commentary", "bash", "json"),
         ["the tool 'bash' in the role's place"]),
        ("<|start|><|start|>assistant<|channel|>final", ("assistant", "", "final", "", ""), ["<|start|> twice"]),
        ("assistant<|start|>assistant<|channel|>final", ("assistant", "", "final", "", ""), ["<|start|> twice"]),
        ("<|channel|>final<|start|>assistant", ("assistant", "", "final", "", ""), ["<|start|> twice"]),
        ("<|channel|><|channel|>final", ("assistant", "", "final", "", ""), ["<|channel|> twice"]),
        ("<|channel|>assistant<|channel|>final", ("assistant", "", "final", "", ""),
         ["the role 'assistant' in another place"]),
        ("<|channel|>finaljson", ("assistant", "", "final", "", "json"), ["'finaljson' for 'final'"]),
        ("<|channel|>final??", ("assistant", "", "final", "", ""), ["'final??' for 'final'"]),
        ("<|start|>assistantcommentaryto=functions.get_weather", (*routing(CALL)[:4], ""),
         ["'assistant' glued to what follows", "the channel 'commentary' in another place",
          "'assistantcommentary' glued to what follows"]),
        ("<|channel|>finalize", ("assistant", "", "", "finalize", ""), ["the recipient 'finalize' without `to=`"]),
        ("<|channel|>commentary to=functions.get_weather: json", (*routing(CALL)[:4], "json"),
         ["the recipient 'functions.get_weather:'"]),
        ("<|channel|>commentary to=user", ("assistant", "", "commentary", "", ""), ["`to=user`"]),
        ("<|channel|>commentary to=", ("assistant", "", "commentary", "", ""), ["nothing directly after `to=`"]),
        ("<|channel|>commentary json code", ("assistant", "", "commentary", "", "code"), ["2 types"]),
        ("<|channel|>commentary <|constrain|>json final", ("assistant", "", "final", "", "<|constrain|>json"),
         ["the channel 'final' in another place", "2 channels"]),
        ("<|channel|>a.b to=functions.get_weather", ("assistant", "", "", "functions.get_weather", ""), []),
    ],
)  # fmt: skip
def test_what_is_said_counts_not_where(text, expected, repairs):
    header = read(text)
    assert routing(header) == expected
    assert list(header.repairs) == repairs


def test_without_a_role_nobody_speaks():
    assert read("<|channel|>final", None).repairs == ("nobody speaks",)
    assert read("nobody<|channel|>final", None).repairs == ("unexpected 'nobody'", "nobody speaks")


def test_a_header_of_another_role_keeps_its_recipient():
    assert read("<|start|>user to=functions.f").recipient == "functions.f"
    assert read("<|start|>user to=user").recipient == "user"
    assert not read("<|start|>user to=functions.f").is_call


@pytest.mark.parametrize(
    ("text", "recipient"),
    [
        (" to=functions.get_weathercommentary json", "functions.get_weather"),
        (" to=functions.get_weatherassistantfinal", "functions.get_weather"),
        (" to=json", "json"),
        (" to=functions.jsonpath", "functions.jsonpath"),
    ],
)
def test_glued_words_end_the_name_where_nobody_knows_the_tools(text, recipient):
    assert read(text, known=None, glued=True).recipient == recipient
    assert read(text, known=None).recipient == text.removeprefix(" to=").removesuffix(" json")


def test_of_several_recipients_the_one_that_is_offered_is_meant():
    assert read(" to=functions.get_weather<|channel|>commentary to=other").recipient == "functions.get_weather"
    assert read(" to=one<|channel|>commentary to=other").recipient == "other"
    assert read(" to=one<|channel|>commentary to=other").repairs == ("2 recipients",)
