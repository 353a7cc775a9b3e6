"""A message's header: role, channel, recipient and content type, however the model wrote them.

    role [":" name] [" to=" recipient] [<|channel|> channel [" to=" recipient]] [[<|constrain|>] type]

Models put the parts in other places, repeat them, glue them to each other, or leave some out. So each word is
classified by what it is rather than by its position, and each deviation is named in `repairs`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from promptools.errors import clip
from promptools.harmony.scan import Piece, Token
from promptools.harmony.tokens import CHANNELS, Role

Known: TypeAlias = Callable[[str], bool]
"""Whether a recipient is that of an offered tool."""

ROLES: tuple[Role, ...] = ("system", "developer", "user", "assistant")
KINDS = ("json", "code")
"""Content types that need no `<|constrain|>`."""
NOBODY = frozenset(("", "all", "user", "assistant"))
"""Recipients that are not tools."""

_GLUED = re.compile(r"(?:assistant)?(?:commentary|analysis|final|json|code)\Z")
_TOOL = re.compile(r"[A-Za-z_]\w*(?:[.:/][\w-]+)+\Z")
"""A name with a namespace: no channel, role or English word has this form."""
_MARKUP = re.compile(r"(?<=.)[<>{]")
"""Markup that models write after a name, and that no name contains."""
_EDGE = ":;,>?!'\"`\\"


@dataclass(frozen=True, slots=True)
class Header:
    """The fields of a header. A field that it does not have is empty."""

    role: Role = "assistant"
    name: str = ""
    """The tool whose result it is, with its namespace; or a user's name."""
    channel: str = ""
    recipient: str = ""
    content_type: str = ""
    """`json`, `code`, or `<|constrain|>json`."""
    repairs: tuple[str, ...] = ()

    @property
    def is_call(self) -> bool:
        """Whether the assistant calls a tool: the recipient decides, on whatever channel."""
        return self.role == "assistant" and self.recipient not in NOBODY


def read_header(
    pieces: Iterable[Piece], role: Role | None = None, known: Known | None = None, *, glued: bool = False
) -> Header:
    """Parse the header before a message. `role` is the default if the header names none.

    `glued`: the words that end the recipient may be the next ones of the header, since no token separates them.
    O(n) in characters.
    """
    reader = _Reader(role, known, glued)
    for piece in pieces:
        reader.take(piece)
    return reader.header()


@dataclass(slots=True)
class _Reader:
    given: Role | None
    known: Known | None
    glued: bool
    role: Role | None = None
    name: str = ""
    channels: list[str] = field(default_factory=list[str])
    kinds: list[str] = field(default_factory=list[str])
    said: list[str] = field(default_factory=list[str])
    """Recipients after `to=`."""
    hinted: list[str] = field(default_factory=list[str])
    """Names of tools that do not follow `to=`."""
    repairs: list[str] = field(default_factory=list[str])
    place: str = "start"
    """The token before the current word."""
    first: bool = True
    """The current word is the first after that token."""
    started: bool = False
    """Its `<|start|>` was there."""
    stranger: str = ""
    """The first word after it, if it is no known role."""
    wants: bool = False
    """White space follows `to=`: the next word is the recipient."""

    def take(self, piece: Piece) -> None:
        if isinstance(piece, Token):
            self._token(piece.name)
            return
        if self.place == "constrain" and self.first and piece[:1].isspace():
            self.repairs.append("a space behind <|constrain|>")
        for word in piece.split():
            self._word(word)

    def header(self) -> Header:
        if self.stranger and "assistant" in self.said:  # only a result is sent to the assistant
            self.role, self.name = "tool", self.stranger
        elif self.stranger:
            self.repairs.insert(0, f"unexpected {clip(self.stranger, 40)!r}")
        role = self.role or self.given
        if role is None or (self.started and self.role is None):
            self.repairs.append("nobody speaks")
        if role == "tool" and self.kinds and not self.said:
            # a result has a recipient and no content type: this is a call, with the tool in place of the role
            self.repairs.append(f"the tool {clip(self.name, 60)!r} in the role's place")
            role, self.name, self.said = "assistant", "", [self.name]
        recipient = self._recipient(role or "assistant")
        channel = self.channels[-1] if self.channels else ""
        if not (channel or recipient) and role == "assistant":
            self.repairs.append("no channel")
        if len(self.channels) > 1:
            self.repairs.append(f"{len(self.channels)} channels")
        if len(self.kinds) > 1:
            self.repairs.append(f"{len(self.kinds)} types")
        kind = self.kinds[-1] if self.kinds else ""
        return Header(role or "assistant", self.name, channel, recipient, kind, tuple(self.repairs))

    def _token(self, name: str) -> None:
        if name == self.place and self.first and name != "start":
            self.repairs.append(f"<|{name}|> twice")
        elif name == "start" and (self.started or not self.first or self.place != "start"):
            self.repairs.append("<|start|> twice")
        self.place, self.first = name, True
        self.started = self.started or name == "start"

    def _word(self, word: str) -> None:
        first, self.first = self.first, False
        if self.wants:
            self.wants = False
            self._to(word)
            return
        before, to, rest = word.partition("to=")
        if to and (not before or before.endswith((*ROLES, *CHANNELS))):
            if before:
                self._plain(before, first=first)
                self.repairs.append(f"{before!r} glued to what follows")
            self._to(rest)
            return
        self._plain(word, first=first)

    def _to(self, word: str) -> None:
        if not word:
            self.wants = True
            self.repairs.append("nothing right behind `to=`")
            return
        self.said.append(word)

    def _plain(self, word: str, *, first: bool) -> None:
        if self.place == "constrain" and first:
            self._constraint(word)
        elif self.place == "start" and first and self._opens(word):
            return
        elif word in ROLES:
            self.repairs.append(f"the role {word!r} in another place")
            self.role = self.role or word
        elif self._channel(word, own=first and self.place == "channel"):
            return
        elif word.strip(_EDGE) in KINDS:
            self.kinds.append(word.strip(_EDGE))
        elif self._tool(word):
            return
        elif self.place == "start" and first and self.started:
            self.stranger = word
        else:
            self.repairs.append(f"unexpected {clip(word, 40)!r}")

    def _opens(self, word: str) -> bool:
        """Parse the first word of a header as its role; return whether it is one."""
        author, _, name = word.partition(":")
        if author in ROLES:
            self.role, self.name = author, name
            return True
        for role in ROLES:
            if word.startswith(role):
                self.role = role
                self.repairs.append(f"{role!r} glued to what follows")
                self._plain(word.removeprefix(role), first=True)
                return True
        if (self.started or self.given is None) and (
            _TOOL.match(word) or (self.known is not None and self.known(word))
        ):
            self.role, self.name = "tool", word
            return True
        return False

    def _channel(self, word: str, *, own: bool) -> bool:
        """Add the channel that the word is or begins with, if any; `own`: the word follows `<|channel|>`."""
        for channel in CHANNELS:
            if word == channel:
                self.channels.append(channel)
                if not own:
                    self.repairs.append(f"the channel {channel!r} in another place")
                return True
            if word.startswith(channel) and not (self.known is not None and self.known(word)):
                rest = word.removeprefix(channel)
                if own or rest in KINDS or rest.strip(_EDGE) == "":
                    self.channels.append(channel)
                    self.repairs.append(f"{clip(word, 40)!r} for {channel!r}")
                    if rest in KINDS:
                        self.kinds.append(rest)
                    return True
        return False

    def _constraint(self, word: str) -> None:
        if self._tool(word):
            return
        if word.strip(_EDGE) in KINDS:
            self.kinds.append(f"<|constrain|>{word.strip(_EDGE)}")
        elif not self._channel(word, own=False):
            self.kinds.append(f"<|constrain|>{word}")

    def _tool(self, word: str) -> bool:
        """Add the word as a tool's name that does not follow `to=`; return whether it is one."""
        name = word.strip(_EDGE)
        if not (_TOOL.match(name) or (self.known is not None and self.known(name))):
            return False
        self.hinted.append(name)
        return True

    def _recipient(self, role: Role) -> str:
        """Return the recipient: names after `to=` take precedence over others, and offered tools over unknown ones."""
        if role != "assistant":
            return self.said[-1].strip(_EDGE) if self.said else ""
        addressed = [cleaned for each in self.said if (cleaned := self._clean(each)) not in NOBODY]
        others = [each for each in self.said if each in NOBODY - {"all", ""}]
        if others:
            self.repairs.append(f"`to={others[0]}`")
        if len(addressed) > 1:
            self.repairs.append(f"{len(addressed)} recipients")
        if not addressed and self.hinted:
            self.repairs.append(f"the recipient {clip(self.hinted[-1], 60)!r} without `to=`")
        candidates = addressed or self.hinted
        offered = [each for each in candidates if self.known is not None and self.known(each)]
        return (offered or candidates or [""])[-1]

    def _clean(self, word: str) -> str:
        name = _MARKUP.split(word)[0].strip(_EDGE)
        if self.glued and self.known is None:
            name = _GLUED.sub("", name) or name
        if name != word:
            self.repairs.append(f"the recipient {clip(word, 60)!r}")
        return name
