"""Patches between random states of a folder: applied, they make the one of the other, or nothing at all."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patches import add, contents, patch, snapshot, update, write

from promptools.harness.toolsets.patch import apply_patch
from promptools.harness.toolsets.patch_format import PatchError

FAST = settings(max_examples=80, deadline=None)
LINES = st.sampled_from(
    ["", " ", "a", "b", "    a", "\ta", "a ", "def f():", "    return 1", "}", "@@", "+a", "-a", "*** End Patch",
     "*** End of File", "*** Update File: f.py", "»ß«", "a\u00a0b", "a b", "\\ No newline at end of file", "\x0c",
     "x\ry"]
)  # fmt: skip
NAMES = st.sampled_from(["f.py", "g.py", "d/f.py", "d/e/h.txt", "ä b.md"])
TEXTS = st.lists(LINES, max_size=14)


@st.composite
def edited(draw, texts=TEXTS):
    """Lines, and the same lines after some edits."""
    before = draw(texts)
    after = list(before)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(after)))
        after[at : at + draw(st.integers(0, 2))] = draw(st.lists(LINES, max_size=2))
    return before, after


@st.composite
def layouts(draw):
    """Line ending, byte order mark, and whether a last newline follows."""
    return draw(st.sampled_from(["\n", "\r\n"])), draw(st.sampled_from(["", "\ufeff"])), draw(st.booleans())


def encode(lines, layout):
    ending, mark, last = layout
    text = ending.join(lines) + (ending if last and lines else "")
    return (mark + text).encode()


@FAST
@given(edited(), layouts(), st.integers(1, 3))
def test_a_patch_makes_the_change_or_says_that_it_is_ambiguous(texts, layout, context):
    before, after = texts
    ending, mark, last = layout
    if "" in (before[-1:] + after[-1:]) or not before:
        last = True  # an empty last line without a newline is no line
    if (not last and len(before) == 1) or not before:
        ending = "\n"  # nothing says that the file has others
    layout = ending, mark, last
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write(root, {"f.py": encode(before, layout)})
        if before == after:
            return
        told = ""
        try:
            apply_patch(root, patch(update("f.py", before, after, context=context)))
        except PatchError as error:
            told = str(error)
        assert ("places of 'f.py'" in told) == bool(told)
        assert contents(root) == {"f.py": encode(before if told else after, layout)}


@st.composite
def trees(draw):
    """Two states of a folder, and the sections that lead from one to the other and back."""
    before, after, there, back = {}, {}, [], []
    for name in draw(st.lists(NAMES, unique=True, max_size=4)):
        old, new = (with_numbers(lines) for lines in draw(edited()))
        kind = draw(st.sampled_from(["add", "delete", "update", "move", "keep"]))
        if kind != "add":
            before[name] = encode(old, ("\n", "", True))
        if kind == "add":
            there.append(add(name, new))
            back.append(f"*** Delete File: {name}")
            after[name] = encode(new, ("\n", "", True))
        elif kind == "delete":
            there.append(f"*** Delete File: {name}")
            back.append(add(name, old))
        elif kind == "keep" or (kind == "update" and old == new):
            after[name] = before[name]
        else:
            moved = f"moved/{name}" if kind == "move" else None
            there.append(update(name, old, new, move_to=moved))
            back.append(update(moved or name, new, old, move_to=name if moved else None))
            after[moved or name] = encode(new, ("\n", "", True))
    return before, after, there, back


def with_numbers(lines):
    """The lines made different from each other, so that any of them says where it is."""
    count: dict[str, int] = {}
    for line in lines:
        count[line] = count.get(line, 0) + 1
    seen: dict[str, int] = {}
    numbered = []
    for line in lines:
        seen[line] = seen.get(line, 0) + 1
        numbered.append(f"{line}#{seen[line]}")
    return numbered


@FAST
@given(trees())
def test_patch_and_reverse(states):
    before, after, there, back = states
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write(root, before)
        if there:
            apply_patch(root, patch(*there))
        assert contents(root) == after
        if back:
            apply_patch(root, patch(*back))
        assert contents(root) == before


@FAST
@given(trees(), st.integers(0, 20))
def test_a_patch_with_one_wrong_section_changes_nothing(states, index):
    before, _, there, _ = states
    wrong = ["*** Update File: f.py\n@@\n-no such line\n+x", "*** Delete File: none", "*** Add File: ../x\n+x"]
    sections = list(there)
    sections.insert(index % (len(there) + 1), wrong[index % 3])
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write(root, before)
        with pytest.raises(PatchError):
            apply_patch(root, patch(*sections))
        assert contents(root) == before


@FAST
@given(st.lists(st.tuples(LINES, st.booleans()), min_size=1, max_size=10))
def test_mixed_line_endings_stay(rows):
    lines = [line for line, _ in rows]
    data = b"".join(line.encode() + (b"\r\n" if crlf else b"\n") for line, crlf in rows)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write(root, {"f.py": data})
        context = [f" {line}" for line in lines]
        apply_patch(root, patch("*** Update File: f.py", *context, "+new", "*** End of File"))
        last = b"\r\n" if rows[-1][1] else b"\n"
        assert contents(root)["f.py"] == data + b"new" + last


PIECES = st.sampled_from(
    ["*** Begin Patch", "*** End Patch", "*** Update File: f.py", "*** Update File: g.py", "*** Add File: n.py",
     "*** Delete File: f.py", "*** Move to: n.py", "*** Move to: ../x", "*** End of File", "@@", "@@ def f():",
     " a", "-a", "+a", "", " ", "a", "-", "+", "+\ud800", " \x00", "```", "PATCH", "*** Add File: .git/hooks/x",
     "*** X", "@@ -1,2 +3 @@",
     "*** Update File: /etc/passwd", '{"patch": "*** Begin Patch"}', "*** Delete File: link"]
)  # fmt: skip


@settings(FAST, max_examples=150)
@given(st.lists(PIECES, max_size=14), st.booleans())
def test_any_text_is_applied_or_refused(pieces, whole):
    text = patch(*pieces) if whole else "\n".join(pieces)
    with tempfile.TemporaryDirectory() as outer:
        root = Path(outer) / "root"
        write(root, {"f.py": b"a\nb\na\ndef f():\n    a\n", "g.py": b"a", ".git/config": b"x"})
        (root / "link").symlink_to("f.py")
        before = snapshot(root)
        try:
            assert apply_patch(root, text).startswith("Done.")
        except PatchError:
            assert snapshot(root) == before
        assert (root / ".git/config").read_bytes() == b"x"
        assert sorted(path.name for path in root.parent.iterdir()) == ["root"]
        assert not [name for name in snapshot(root) if "promptools" in name]
