r"""Decide from the text before a call whether the call is only mentioned: in a program, log or patch, or as an example.

    assert parse('<tool_call>...')              a string literal, or an argument
    2026-11-01 12:00:00 INFO call: <tool_call>  a log
    +<tool_call>                                a patch
    Never write:\n```\n<tool_call>              announced as something not to do

Only unambiguous evidence counts. "I call it like this:" announces a real call, as do most sentences that end in a
colon; what counts is a whole sentence saying that what follows is an example, is wrong, or was not run.
"""

from __future__ import annotations

import re

from promptools.dialects.calls.parse_options import ParseOptions
from promptools.patterns import lazy_pattern
from promptools.schema.spelling import is_offered_name

CONTEXT = 256
"""Number of characters before a call that are examined."""

_OPEN_QUOTE = lazy_pattern(r"(?:\A|[^\w\"'])[bfruBFRU]{0,2}([\"'])(?:\1\1)?\Z")
_LITERAL = lazy_pattern(r"[=(\[{,][ ]?[bfruBFRU]{0,2}([\"'])(?!\1)(?:\\.|(?!\1)[^\\\n])*+\Z")
_ARGUMENT = lazy_pattern(r"\w\(\Z")
_TEMPLATE = lazy_pattern(r"(?:[=(\[{,:]|\breturn) ?`[^`\n]*\Z")
_TYPOGRAPHIC = lazy_pattern(r"[“„«「『]\Z")
_TRIPLE = lazy_pattern(r"(?:\"\"\"|''')\Z")
_LONG = lazy_pattern(r"<<[-~]?[ ]?[\"']?\w+[\"']?[ ]*\Z|\w[\"']?:[ ]+[|>][+-]?[ ]*\Z")
"""Matches the end of a line that opens a long string: a shell's here-document, or a block of YAML."""
_CELL = lazy_pattern(r"[ ]{0,3}\|(?:.*\|)?[ ]+\Z")
_HTML = lazy_pattern(
    r"<(?:pre|code|samp|kbd|blockquote)(?:\s[^<>\n]{0,64})?>\s{0,8}\Z|<!--\s{0,8}\Z|<!\[CDATA\[\s{0,8}\Z"
)
_EMPHASIS_LENGTH = 4
"""Number of characters before a call that show whether the call is emphasized.

These are up to three emphasis marks, and one character before the marks.
"""
_EMPHASIS = lazy_pattern(r"(?:\A|[\s(\[>|])(?:\*{1,3}|_{1,3})\Z")
_HEADING = lazy_pattern(r"[ ]{0,3}#{1,6}[ \t]")
_ROLE = r"[ ]{0,3}(?:\*\*|#{1,6} )?"
_ANSWERS = lazy_pattern(
    rf"(?:\A|\n){_ROLE}(?:assistant|ai|bot|model|agent)(?:\*\*:|:(?:\*\*)?)\s{{0,8}}\Z", re.IGNORECASE
)
_ASKS = lazy_pattern(rf"(?:\A|\n){_ROLE}(?:user|human)(?:\*\*:|:)", re.IGNORECASE)
_CLOCK = r"\d{1,2}:\d{2}:\d{2}"
_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)"
_LOGGED = lazy_pattern(
    rf"[\[(]?(?:\d{{4}}[-/]\d\d[-/]\d\d[T ]{_CLOCK}|[A-Z][a-z]{{2}}[ ]{{1,2}}\d{{1,2}} {_CLOCK}"
    rf"|{_CLOCK}[.,]\d{{3}}\b|{_CLOCK}\]?[ ]{_LEVEL}\b|{_CLOCK}\][ ]|{_LEVEL}[\]:|])"
)
_PATCHED = lazy_pattern(r"[+-]\Z|@@ -\d+")
_INDENT = lazy_pattern(r"(?:[ ]{4}|\t)[ \t]*\Z")
_ITEM = lazy_pattern(r"[ \t]*(?:[-*+]|\d{1,3}[.)])[ \t]")

_EMPTY_LINE = lazy_pattern(r"\n[ \t\r]*\n")
_CALLED = lazy_pattern(
    r"[ \t]{0,64}(?:[^\W\d]\w{0,63}[ \t]{0,4}=[ \t]{0,4}|print[ \t]?\([ \t]{0,4})?(?:await[ \t]{1,4})?"
    r"(\w[\w.\\-]{0,127}+)[ \t]{0,4}\("
)
"""Matches a line that begins with a function call, perhaps one whose result is assigned, printed or awaited."""

_IT = r"(?:it|this|that|them|these|any of (?:it|this|them))"
_DO = (
    r"(?:write|do|use|send|call|run|make|print|answer|reply|say|output|format|type|emit|produce|copy|execute|invoke"
    r"|try)\b"
)
_WHO = r"(?:(?:please|so|and|but|also|you|we|models|agents|one) )*(?:(?:should|must|may) )?"
_NOT = r"(?:do not|don['’]?t|never|not|mustn['’]t|shouldn['’]t) (?:ever )?"
_IS = r"(?:(?:this|that|the following|it) (?:is|would be) )?(?:an? )?"
_SHOWN = r"(?:(?:as|here is|here['’]s|this is|below is|see|consider) )?(?:an?|one|another) "
_REST = r"[^,;:.!?\n]{0,48}"
_NO_PLAN = r"(?!.*\b(?:I|we)(?:['’]ll| will| am going| are going| want| need)\b)"
_EXAMPLES = (
    rf"{_NO_PLAN}{_SHOWN}(?:[a-z-]+ )?examples?\b{_REST}",
    r"for (?:example|instance)",
    r"e\.? ?g\.?",
    r"(?:some )?examples?(?: (?:call|tool call|usage|format|output|\d+))?",
    r"for (?:documentation|illustration)(?: purposes)?(?: only)?",
    r"zum beispiel|z\. ?b\.|beispiel|par exemple|exemple|por ejemplo|ejemplo|per esempio|esempio|por exemplo|exemplo",
    r"например|пример|例如|比如|示例|例子|例|たとえば|例えば|예를 들어|예시",
)
_FORBIDDEN = rf"{_WHO}(?:do not|don['’]?t|never) (?:ever )?{_DO}{_REST}"
_WRONG = (
    rf"{_WHO}{_NOT}{_DO}{_REST}",
    rf"{_WHO}avoid (?:writing|doing|using|sending|calling|making|printing)\b{_REST}",
    rf"{_IS}(?:wrong|bad|incorrect|invalid|not valid|malformed)(?: (?:call|example|format|way|syntax|one|answer))?",
    r"(?:instead of|rather than|not)(?: like)?(?: this| that)?",
    rf"so nicht|nicht so|(?:schreib|mach)\w* (?:(?:das|es|sie) )*(?:nicht|nie)\b{_REST}",
    rf"ne (?:l['’]|le |les )?(?:fai[st]|écri|utilis|appel|lanc|envo)\w* (?:pas|jamais)\b{_REST}",
    rf"(?:no (?:lo|la|los)|nunca) (?:haga|escriba|use|llame|env[ií]|ejecute)\w*{_REST}",
    r"(?:请)?(?:不要|别|切勿)(?:这样|那样)?(?:写|做|用|使用|调用)[^，。：:\n]{0,16}",
)
_BESIDE = r"(?: ?\([^()]{0,80}\))?"
_ANNOUNCED = lazy_pattern(rf"(?:{'|'.join((*_EXAMPLES, *_WRONG))}){_BESIDE} ?", re.IGNORECASE)
_FORBIDS = lazy_pattern(rf"{_FORBIDDEN}{_BESIDE} ?", re.IGNORECASE)
_NOT_RUN = lazy_pattern(
    r"\b(?:I|we) (?:did not|didn['’]t|have not|haven['’]t|will not|won['’]t|do not|don['’]t|am not going to)"
    rf" (?:actually )?(?:run|ran|execute|executed|call|called|make|made|send|sent|invoke|invoked) {_IT}\)?\Z"
    r"|\(not (?:executed|run|called)\)\Z",
    re.IGNORECASE,
)
_SENTENCE_ENDS = lazy_pattern(r"[.!?。！？] ")
MAX_SENTENCE = 160
"""The maximum length of a sentence that may announce a call."""


def is_mentioned(before: str, *, fenced: bool, sentinel: bool, expected: bool) -> bool:
    """Return whether the text before a call shows that the call is only mentioned.

    `before` is the text before the call, or before the code fence around the call. `fenced` says that the call is in
    such a fence. `expected` says that the request asked for the call's dialect; then only the line before the call can
    show that the call is mentioned. `sentinel` says that the call's opener is a special token; then the sentence before
    the call can show a mention only if the call is in a fence.
    """
    if not before.strip():  # most replies begin with their call
        return False
    if in_line(before):
        return True
    return not expected and (in_block(before) or ((fenced or not sentinel) and is_announced(before)))


def may_be_mentioned(before: str) -> bool:
    """Return whether a call after the text `before` might be only mentioned, whatever the dialect of the call."""
    return in_line(before) or in_block(before) or is_announced(before)


def in_line(before: str) -> bool:
    """Return whether the text before a call puts the call into a string, an argument, a table, a log or a patch."""
    above, _, line = before.rpartition("\n")
    if not line.strip() and _opens_long_string(above[above.rfind("\n") + 1 :]):
        return True
    if _TYPOGRAPHIC.search(line):
        return len(before.strip()) > 1
    quote = _OPEN_QUOTE.search(line)
    if quote is not None and line.count(quote[1]) % 2:
        return bool(before.strip("\"' \n"))  # unless the whole reply is in quotes
    if _LITERAL.search(line) or _TEMPLATE.search(line) or _ARGUMENT.search(line):
        return True
    return len(line) < CONTEXT and bool(_LOGGED.match(line.lstrip()) or _PATCHED.match(line) or _CELL.match(line))


def continues_program(before: str, since: int | None, options: ParseOptions) -> bool:
    """Return whether a call that begins with a tool's name follows a line of code, and so is part of a program.

    `since` is the number of characters from the end of the last possible call that began with a tool's name to this
    call; None if there was no such possible call.
    """
    if since is not None and since <= len(before):
        between = before[len(before) - since :]
        _, _, lines = between.partition("\n")  # the first line belongs to that call
        if not lines.strip(" \t\r\n,;") or not _EMPTY_LINE.search(between):
            return True
    above = before.rstrip(" \t").split("\n")[-2:]
    called = _CALLED.match(above[0]) if len(above) > 1 and not above[1] else None
    return called is not None and is_offered_name(called[1], options.tools)


def _opens_long_string(line: str) -> bool:
    """Return whether a line ends by opening a long string, as with `'''` or a here-document's `<<EOF`."""
    if _TRIPLE.search(line):
        mark = line[-3:]
        return len(line) > len(mark) and line.count(mark) % 2 == 1
    return _TEMPLATE.search(line) is not None or _LONG.search(line) is not None


def in_block(before: str) -> bool:
    """Return whether the text before a call puts the call into HTML, a transcript, or certain kinds of Markdown.

    These kinds are headings, emphasis and indented code. Indented text below a list item is not code.
    """
    if _HTML.search(before) or _EMPHASIS.search(before[-_EMPHASIS_LENGTH:]):
        return True
    line = before.rfind("\n") + 1
    if (line or len(before) < CONTEXT) and _HEADING.match(before, line):
        return True
    if before.rstrip().endswith((":", "**")) and _ANSWERS.search(before) and _ASKS.search(before):
        return True
    text, _, indent = before.rpartition("\n")
    if not _INDENT.match(indent) or text[text.rfind("\n") + 1 :].strip():
        return False
    paragraph = text.rstrip()
    return bool(paragraph) and not _ITEM.match(paragraph[paragraph.rfind("\n") + 1 :])


def is_announced(before: str) -> bool:
    """Return whether the last sentence before the call says that the call is an example, is wrong, or was not made."""
    above = before.rstrip().rstrip("*_ ")
    if above[-1:] not in (":", "："):
        return False
    line = " ".join(above[above.rfind("\n") + 1 : -1].strip(" \t*_#>").split())
    ends = [match.end() for match in _SENTENCE_ENDS.finditer(line)]
    sentence = line[ends[-1] if ends else 0 :]
    if len(sentence) > MAX_SENTENCE:
        return False
    if _ANNOUNCED.fullmatch(sentence) or _NOT_RUN.search(sentence):
        return True
    return _FORBIDS.fullmatch(sentence.rpartition(", ")[2]) is not None
