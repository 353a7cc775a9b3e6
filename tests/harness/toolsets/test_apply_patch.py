"""The V4A patch format: what is accepted, what is matched, and what is said of the rest."""

import json
import os

import pytest
from counted import functions_called
from patches import add, contents, patch, snapshot, write

from promptools.cli import main
from promptools.errors import UsageError
from promptools.harness.toolsets.file_changes import FileState, PatchedFolder
from promptools.harness.toolsets.patch import apply_patch, patch_tool
from promptools.harness.toolsets.patch_format import PatchError

SOURCE = """\
class First:
    def run(self):
        return 1

    def stop(self):
        pass


class Second(Base):
    def run(self):
        return 1

    def stop(self):
        pass
"""
CHANGE = "*** Update File: a.py\n@@\n-one\n+two"


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    write(folder, {"a.py": b"one\n", "src/b.py": SOURCE.encode()})
    return folder


def refused(root, text):
    before = snapshot(root)
    with pytest.raises(PatchError) as caught:
        apply_patch(root, text)
    assert snapshot(root) == before
    assert str(caught.value).startswith("No file was changed.\n")
    return "\n".join(caught.value.problems)


# --- the format ------------------------------------------------------------------------------------------------------


def test_every_kind_of_section_and_the_summary(root):
    write(root, {"old.md": b"x\n", "moved.txt": b"a\nb\n"})
    text = patch(
        CHANGE,
        add("docs/new.md", ["# Title", ""]),
        "*** Delete File: old.md",
        "*** Update File: moved.txt\n*** Move to: new/place.txt\n@@\n a\n-b\n+c\n*** End of File",
    )
    assert apply_patch(root, text).split("\n") == [
        "Done.",
        "M a.py (+1 -1)",
        "A docs/new.md (+2)",
        "D old.md",
        "R moved.txt -> new/place.txt (+1 -1)",
    ]
    assert contents(root) == {
        "a.py": b"two\n",
        "docs/new.md": b"# Title\n\n",
        "new/place.txt": b"a\nc\n",
        "src/b.py": SOURCE.encode(),
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("```\n", "\n```"),
        ("apply_patch <<'PATCH'\n", "\nPATCH\n"),
        ("```bash\napply_patch <<'EOF'\n", "\nEOF\n```"),
        ("Here it is:\n\n", "\n\nThat is all."),
    ],
)
def test_what_is_around_a_patch_is_left_out_with_a_note(root, before, after):
    assert "left out" in apply_patch(root, before + patch(CHANGE) + after)
    assert contents(root)["a.py"] == b"two\n"


@pytest.mark.parametrize("wrapped", [{"patch": patch(CHANGE)}, ["apply_patch", patch(CHANGE)]])
def test_json_around_a_patch(root, wrapped):
    assert "inside of JSON" in apply_patch(root, json.dumps(wrapped))
    assert contents(root)["a.py"] == b"two\n"


def test_two_patches_in_one_text_and_two_sections_of_one_file(root):
    apply_patch(root, patch(CHANGE) + "\n" + patch("*** Update File: a.py\n-two\n+three", add("n", [])))
    assert contents(root)["a.py"] == b"three\n"
    assert contents(root)["n"] == b""


def test_a_patch_with_crlf(root):
    text = patch(CHANGE, add("n.txt", ["x"])).replace("\n", "\r\n")
    apply_patch(root, text)
    assert contents(root)["a.py"] == b"two\n"
    assert contents(root)["n.txt"] == b"x\n"


def test_a_new_file_with_crlf_in_a_patch_without(root):
    apply_patch(root, patch(add("n.bat", ["x\r", "y\r"])))
    assert contents(root)["n.bat"] == b"x\r\ny\r\n"


def test_delete_and_add_replace_a_file_and_keep_its_mode(root):
    (root / "a.py").chmod(0o750)
    apply_patch(root, patch("*** Delete File: a.py", add("a.py", ["new"])))
    assert snapshot(root)["a.py"] == (b"new\n", 0o750)


@pytest.mark.parametrize("mode", [0o755, 0o444, 0o600, 0o777])
def test_modes_stay(root, mode):
    (root / "a.py").chmod(mode)
    apply_patch(root, patch(CHANGE + "\n*** Update File: src/b.py\n*** Move to: b.py"))
    apply_patch(root, patch("*** Update File: a.py\n*** Move to: c.py"))
    assert snapshot(root)["c.py"] == (b"two\n", mode)


@pytest.mark.parametrize("depth", [100, 3000, 100_000])
def test_a_path_of_very_many_folders_is_refused(root, depth):
    path = "d/" * depth + "new"
    for section in (add(path, ["x"]), f"*** Update File: a.py\n*** Move to: {path}", f"*** Delete File: {path}"):
        assert "is more than 100 folders deep; choose a shorter path." in refused(root, patch(section))


def test_a_long_chain_of_links_is_not_a_path(root):
    for number in range(1200):
        (root / str(number)).symlink_to(str(number + 1))
    assert "cannot be a path" in refused(root, patch(add("0/new", ["x"])))


@pytest.mark.parametrize("bits", [0o4000, 0o2000, 0o6000])
@pytest.mark.parametrize(
    "sections",
    [
        (CHANGE,),
        ("*** Update File: a.py\n*** Move to: c.py",),
        ("*** Delete File: a.py", add("a.py", ["#!/bin/sh"])),
    ],
)
def test_no_setuid_or_setgid_bit_stays(root, bits, sections):
    """The content is the model's: as after write(2), it does not run as the file's owner."""
    (root / "a.py").chmod(0o755 | bits)
    apply_patch(root, patch(*sections))
    (changed,) = [path for path in root.iterdir() if path.is_file()]
    assert changed.stat().st_mode & 0o7777 == 0o755


def test_layout_between_sections_is_not_context(root):
    write(root, {"b": b"x\ny\n"})
    text = (
        "*** Begin Patch\n\n*** Update File: a.py\n\n@@\n\n-one\n+two\n\n\n*** Update File: b\n y\n+z\n\n*** End Patch"
    )
    apply_patch(root, text)
    assert contents(root)["a.py"] == b"two\n"
    assert contents(root)["b"] == b"x\ny\nz\n"


def test_an_empty_line_of_a_new_file(root):
    assert "read as +" in apply_patch(root, patch("*** Add File: n\n+a\n\n\n+b\n\n"))
    assert contents(root)["n"] == b"a\n\n\nb\n"


def test_files_without_a_last_newline(root):
    write(root, {"f": b"a\r\nb"})
    apply_patch(root, patch("*** Update File: f\n@@\n b\n+c"))
    assert contents(root)["f"] == b"a\r\nb\r\nc"
    apply_patch(root, patch("*** Update File: f\n@@\n-c\n\\ No newline at end of file"))
    assert contents(root)["f"] == b"a\r\nb"


def test_a_changed_line_keeps_its_ending(root):
    write(root, {"f": b"a\nb\r\nc\n"})
    apply_patch(root, patch("*** Update File: f\n-a\n-b\n+A\n+B\n+BB\n c\n+d"))
    assert contents(root)["f"] == b"A\nB\r\nBB\r\nc\nd\n"


def test_bytes_that_are_not_utf_8_stay(root):
    write(root, {"f": b"\xff\xfe caf\xe9\nx\n\x00\n"})
    apply_patch(root, patch("*** Update File: f\n@@\n \ufffd\ufffd caf\ufffd\n-x\n+y"))
    assert contents(root)["f"] == b"\xff\xfe caf\xe9\ny\n\x00\n"


# --- where hunks belong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "wanted", "note"),
    [
        ("one", "one", None),
        ("one  ", "one", "end of lines"),
        ("  one\ttwo", "one two", "spacing"),
        ("a\u00a0b\u202fc", "a b c", "spacing"),
        ("say \u201cit\u2019s\u201d \u2013 now\u2026", 'say "it\'s" - now...', "typographic"),
        ('say "it\'s" - now...', "say \u201cit\u2019s\u201d \u2013 now\u2026", "typographic"),
        ("zero\u200bwidth", "zerowidth", "typographic"),
        ("e\u0301", "\u00e9", "typographic"),
    ],
)
def test_lines_that_are_alike(root, line, wanted, note):
    write(root, {"f": f"x\n{line}\ny\n".encode()})
    summary = apply_patch(root, patch(f"*** Update File: f\n@@\n {wanted}\n-y\n+z"))
    assert contents(root)["f"] == f"x\n{line}\nz\n".encode()
    assert ("Note" in summary) == (note is not None)
    assert (note or "Done") in summary


def test_the_strictest_match_counts(root):
    write(root, {"f": b"one \n one\none\n"})
    apply_patch(root, patch("*** Update File: f\n-one\n+two"))
    assert contents(root)["f"] == b"one \n one\ntwo\n"


def test_all_lines_of_a_hunk_count(root):
    write(root, {"f": b"a\nb\nc\na\nb\nx\nz\nb\nc\n"})
    apply_patch(root, patch("*** Update File: f\n a\n b\n-c"))
    assert contents(root)["f"] == b"a\nb\na\nb\nx\nz\nb\nc\n"


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("@@\n-return 1\n+return 2\n+if x:\n+    y()", "    return 2\n    if x:\n        y()\n"),
        ("@@\n-      return 1\n+      return 2\n+  z", "    return 2\nz\n"),
        ("@@\n-\treturn 1\n+\treturn 2", "    return 2\n"),
    ],
)
def test_added_lines_get_the_indentation_of_the_file(root, body, wanted):
    write(root, {"f": b"def f():\n    return 1\n"})
    assert "indentation" in apply_patch(root, patch("*** Update File: f\n" + body))
    assert contents(root)["f"].decode() == "def f():\n" + wanted


@pytest.mark.parametrize(
    ("before", "body", "after"),
    [
        ("    a\n", " a\n+    b\n+        c", "    a\n    b\n        c\n"),
        ("    a\n", " a\n+b\n+    c", "    a\n    b\n        c\n"),
        ("    a\n        b\n", " a\n     b\n+        c", "    a\n        b\n            c\n"),
        ("    a\n    b\n", " a\n-    b\n+    c\n+d", "    a\n    c\nd\n"),
        ("    a\n        b\n", " a\n b\n+c", "    a\n        b\nc\n"),
    ],
)
def test_added_lines_are_shifted_only_as_lines_of_the_file_are(root, before, body, after):
    write(root, {"f": before.encode()})
    apply_patch(root, patch(f"*** Update File: f\n@@\n{body}"))
    assert contents(root)["f"].decode() == after


def test_context_that_lacks_one_space_does_not_shift_added_lines(root):
    write(root, {"f": b"    a\n    b\n"})
    apply_patch(root, patch("*** Update File: f\n@@\n    a\n-    b\n+    c"))
    assert contents(root)["f"] == b"    a\n    c\n"


@pytest.mark.parametrize(
    "header",
    [
        "@@ class Second(Base):",
        "@@ class Second",
        "@@ class Second(Other):",
        "@@ class Second(Base): @@",
        "@@ class Second(Base):\n@@ def run(self):",
        "@@ -10,3 +10,3 @@ class Second(Base):",
        "@@ -10,2 +10,2 @@",
    ],
)
def test_a_header_chooses_between_places(root, header):
    body = "     def run(self):\n-        return 1\n+        return 2"
    apply_patch(root, patch(f"*** Update File: src/b.py\n{header}\n{body}"))
    first, _, second = contents(root)["src/b.py"].decode().partition("class Second")
    assert "return 1" in first
    assert "return 2" in second


def test_a_header_in_nested_blocks(root):
    body = "@@ class First:\n@@     def stop(self):\n-        pass\n+        return"
    apply_patch(root, patch(f"*** Update File: src/b.py\n{body}"))
    assert contents(root)["src/b.py"].decode() == SOURCE.replace("pass", "return", 1)


def test_hunks_go_on_below_the_one_before(root):
    hunks = "@@ class Second\n-        return 1\n+        return 2\n@@\n-        pass\n+        return"
    apply_patch(root, patch(f"*** Update File: src/b.py\n{hunks}"))
    assert contents(root)["src/b.py"].decode().endswith("return 2\n\n    def stop(self):\n        return\n")


def test_hunks_out_of_order_and_with_common_context(root):
    write(root, {"f": b"a\nb\nc\nd\ne\n"})
    apply_patch(root, patch("*** Update File: f\n@@\n c\n-d\n+D\n e\n@@\n a\n-b\n+B\n c\n d"))
    assert contents(root)["f"] == b"a\nB\nc\nD\ne\n"


def test_added_lines_alone(root):
    write(root, {"f": b"a\ndef f():\nb\n", "empty": b""})
    text = "*** Update File: f\n@@ def f():\n+  1\n@@\n+end\n*** End of File\n*** Update File: empty\n+x"
    apply_patch(root, patch(text))
    assert contents(root)["f"] == b"a\ndef f():\n  1\nb\nend\n"
    assert contents(root)["empty"] == b"x\n"
    assert "nothing says where" in refused(root, patch("*** Update File: f\n@@\n+x"))


def test_blank_context_alone_says_nothing(root):
    write(root, {"f": b"def f():\n  1\n"})
    apply_patch(root, patch("*** Update File: f\n@@ def f():\n\n+  0\n"))
    assert contents(root)["f"] == b"def f():\n  0\n  1\n"


def test_many_sections_of_one_file(root):
    assert "write one section" in refused(root, patch(*["*** Update File: a.py\n one\n+x"] * 60))


def test_the_end_of_a_file_chooses(root):
    write(root, {"f": b"x\nb\nx\n"})
    apply_patch(root, patch("*** Update File: f\n@@\n-x\n+y\n\n*** End of File"))
    assert contents(root)["f"] == b"x\nb\ny\n"
    assert "not at the end" in apply_patch(root, patch("*** Update File: f\n@@\n-b\n+c\n*** End of File"))
    assert contents(root)["f"] == b"x\nc\ny\n"


# --- what is wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "There is no patch"),
        ("*** Begin Patch\n*** End Patch", "line 1: the patch is empty"),
        ("*** Begin Patch\n" + CHANGE, "line 5: *** End Patch is missing"),
        (CHANGE + "\n*** End Patch", "line 1: *** Begin Patch is missing"),
        ("--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-one\n+two", "line 1: this is a unified diff"),
        (r"*** Begin Patch\n*** End Patch", "line 1: *** Begin Patch must be a line of its own"),
        (patch("*** Begin Patch"), "line 2: *** Begin Patch inside of a patch"),
        (patch("*** Add File: "), "line 2: there is no path"),
        (patch("*** Add File: n\n+a\nb"), "line 4: `b` in the new file 'n' must begin with +"),
        (patch("x"), "line 2: `x` after *** Begin Patch has no meaning"),
        (patch("*** Delete File: a.py\n-one"), "line 3: `-one` after `*** Delete File: a.py` has no meaning"),
        (patch("*** Update File: a.py"), "line 2: there is nothing to change in 'a.py'"),
        (patch("*** Update File: a.py\n@@"), "line 3: the hunk has no lines"),
        (patch("*** Update File: a.py\n@@\n-one\n*** Move to: b"), "line 5: write *** Move to: directly after"),
        (patch("*** Update File: a.py\n*** End of File"), "line 3: there is no hunk before"),
        (patch("*** Update File: a.py\n@@\n-one\n*** Rename: b"), "line 5: `*** Rename: b` is not a line of a patch"),
        (patch("*** Update File: a.py\n@@\none"), "line 4: `one` must begin with a space"),
        (patch("*** Update File: b.py\n@@\n-one"), "line 2: there is no file 'b.py'; in its folder there are: a.py"),
        (patch("*** Update File: no/b.py\n@@\n-one"), "line 2: there is no file 'no/b.py'."),
        (patch("*** Delete File: src"), "line 2: 'src' is a folder"),
        (patch("*** Add File: src/b.py\n+x"), "line 2: there is a file 'src/b.py' already; use *** Update File"),
        (patch("*** Add File: src\n+x"), "line 2: there is a folder 'src' already"),
        (patch("*** Add File: a.py/x\n+x"), "line 2: 'a.py/x' cannot be: 'a.py' is a file"),
        (patch(add("n", ["x"]), add("n/x", ["y"])), "line 4: 'n/x' cannot be: 'n' is a file"),
        (patch("*** Update File: a.py\n*** Move to: src/b.py"), "line 2: there is a file 'src/b.py' already"),
        (patch(CHANGE, "*** Update File: a.py\n@@\n-one"), "line 8: `one` is not in 'a.py'"),
        (patch("*** Update File: a.py\n@@\n-one\n+\udc80"), "line 5: half of a surrogate pair"),
        (patch("*** Add File: x\0y"), "is not the path"),
        (patch("*** Add File: " + "x" * 300 + "\n+a"), "line 2: '" + "x" * 300 + "' cannot be"),
    ],
)
def test_errors_say_the_line_and_what_to_do(root, text, problem):
    assert problem in refused(root, text)


@pytest.mark.parametrize(
    ("hunk", "problem"),
    [
        (" class First:\n     def run(self):\n-        return 2", "line 6: `        return 2` does not follow line 2"),
        ("-no\n         pass\n \n \n class Second(Base):", "line 4: `no` is not above line 6"),
        ("-class Furst:", "`class Furst:` is not in 'src/b.py'; the most similar line is 1, `class First:`"),
        (
            "     def stop(self):\n-        pass\n+        x",
            "fits 2 places of 'src/b.py': line 5 (in `class First:`), l",
        ),
        ("@@ class Second\n-class First:", "above `@@ class Second` (line 9)"),
        (" class First:\n-    def ran(self):\n+    def run(self):", "the hunk was applied before"),
        ("-class First:\n@@\n-class First:\n+x", "line 5: another hunk changes line 1"),
        (
            "-\n-class Second(Base):\n@@\n-class Second(Base):\n-    def run(self):",
            "line 6: another hunk changes line 9",
        ),
    ],
)
def test_errors_of_hunks_say_what_the_file_has(root, hunk, problem):
    assert problem in refused(root, patch(f"*** Update File: src/b.py\n@@\n{hunk}"))


def test_all_problems_are_told_at_once_up_to_a_number(root):
    text = patch("*** Update File: src/b.py\n@@\n-q1\n@@\n-q2", "*** Delete File: none", CHANGE)
    assert refused(root, text).count("line ") == 3
    with pytest.raises(PatchError, match="and 12 more problems"):
        apply_patch(root, patch(*["*** Delete File: none"] * 20))


# --- inside of the root ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../x", "src/../../x", "src/../a.py", ".git/hooks/pre-commit", "src/.GIT/config", "out/x", "out",
     "back/x", "dangling", "loop/x", "..", ".", "src/..", "sub/.git"],
)  # fmt: skip
@pytest.mark.parametrize(
    "form", ["*** Add File: {}\n+x", "*** Delete File: {}", "*** Update File: a.py\n*** Move to: {}"]
)
def test_paths_that_are_refused(root, tmp_path, path, form):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_bytes(b"secret")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "back").symlink_to("../outside")
    (root / "dangling").symlink_to("../nothing")
    (root / "loop").symlink_to("loop")
    refused(root, patch(form.format(path)))
    assert snapshot(tmp_path / "outside") == {"x": (b"secret", (tmp_path / "outside/x").stat().st_mode & 0o7777)}
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "nothing").exists()


def test_an_absolute_path_inside_is_named_as_it_should_be(root):
    assert "such as src/b.py" in refused(root, patch(f"*** Delete File: {root}/src/b.py"))


def test_links_inside(root):
    (root / "link.py").symlink_to("a.py")
    (root / "folder").symlink_to("src")
    apply_patch(root, patch("*** Update File: link.py\n-one\n+two", add("folder/new.py", ["x"])))
    assert (root / "link.py").is_symlink()
    assert contents(root)["a.py"] == b"two\n"
    assert contents(root)["src/new.py"] == b"x\n"
    assert "is a symbolic link to 'a.py'" in refused(root, patch("*** Delete File: link.py"))


def test_special_files_are_refused_without_waiting(root):
    os.mkfifo(root / "pipe")
    assert "special file" in refused(root, patch("*** Update File: pipe\n-x"))


def test_a_hard_link_to_a_file_outside_is_replaced_and_not_written_through(root, tmp_path):
    (tmp_path / "outside").write_bytes(b"one\n")
    (root / "hard").hardlink_to(tmp_path / "outside")
    apply_patch(root, patch("*** Update File: hard\n-one\n+two"))
    assert (tmp_path / "outside").read_bytes() == b"one\n"
    assert (root / "hard").read_bytes() == b"two\n"


@pytest.mark.parametrize("when", ["before reading", "before writing"])
def test_a_folder_that_becomes_a_link_is_not_followed(root, tmp_path, when):
    outside = tmp_path / "outside"
    write(outside, {"b.py": b"secret"})
    folder = PatchedFolder(root)
    path = folder.resolve("src/b.py")

    def swap():
        (root / "src").rename(tmp_path / "away")
        (root / "src").symlink_to(outside)

    if when == "before reading":
        swap()
        assert folder.read(path) is None
    else:
        folder.read(path)
        folder.change(path, FileState(b"x"))
        swap()
        with pytest.raises(PatchError):
            folder.commit()
    folder.close()
    assert contents(outside) == {"b.py": b"secret"}


# --- all or nothing --------------------------------------------------------------------------------------------------

FOUR_FILES = patch(
    CHANGE,
    add("new/deep/f", ["x"]),
    "*** Delete File: gone",
    "*** Update File: src/b.py\n*** Move to: src/c.py\n@@ class Second\n-        pass\n+        x",
)


@pytest.mark.parametrize("operation", ["open", "mkdir", "rename"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_while_writing_leaves_everything_as_it_was(root, monkeypatch, operation, error):
    write(root, {"gone": b"g"})
    before = snapshot(root)
    original, failing = getattr(os, operation), 0
    while True:
        failing += 1
        left = failing

        def fail_once(*arguments, **options):
            nonlocal left
            left -= 1
            if left == 0:
                raise error
            return original(*arguments, **options)

        with monkeypatch.context() as patched:
            patched.setattr(os, operation, fail_once)
            patched.setattr(os, "supports_dir_fd", {fail_once, *os.supports_dir_fd})
            try:
                apply_patch(root, FOUR_FILES)
            except (PatchError, UsageError, KeyboardInterrupt):
                assert left <= 0
            if left > 0:
                break
        if (root / "src/c.py").exists():
            break  # only the removal of old files failed
        assert snapshot(root) == before, f"{operation} number {failing} failed"
        assert not (root / "new").exists()
    assert failing > 2
    after = {name for name in contents(root) if not name.rpartition("/")[2].startswith(".promptools")}
    assert after == {"a.py", "new/deep/f", "src/c.py"}


def test_old_content_that_cannot_be_removed_is_named(root, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", lambda name, **options: root.rmdir())
        summary = apply_patch(root, patch(CHANGE))
    (left,) = (name for name in contents(root) if name.startswith(".promptools"))
    assert f"{left!r} has old content" in summary
    assert contents(root)["a.py"] == b"two\n"


def test_what_cannot_be_undone_is_not_called_unchanged(root, monkeypatch):
    renamed = []

    def fail(*names, original=os.rename, **options):
        renamed.append(names)
        if len(renamed) > 1:
            raise OSError(5, "Input/output error")
        original(*names, **options)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(PatchError, match="could not be undone") as caught:
        apply_patch(root, patch(CHANGE))
    assert caught.value.changed
    assert "No file was changed" not in str(caught.value)


def test_a_root_that_is_not_a_folder(root):
    with pytest.raises(UsageError, match="not a folder"):
        apply_patch(root / "a.py", patch(CHANGE))


# --- costs, and the tool ---------------------------------------------------------------------------------------------


def many_hunks(count):
    lines = [line for number in range(count) for line in (f"def f{number}():", "    x = 1", "    return x", "")]
    hunks = [f"@@\n def f{number}():\n     x = 1\n-    return x\n+    return y\n " for number in range(0, count, 2)]
    return lines, patch("*** Update File: f", *hunks)


def hunks_of_many_lengths(count):
    lines = [str(number) for number in range(count * 8)]
    hunks = [
        f"@@\n {lines[8 * n]}\n" + "\n".join(f"-{lines[8 * n + k]}" for k in range(1, 2 + n % 6)) for n in range(count)
    ]
    return lines, patch("*** Update File: f", *hunks)


def repeated_lines(count):
    lines = ["x"] * count + ["end"]
    return lines, patch("*** Update File: f", *["@@", *[" x"] * (count // 2 + 1), "-end"])


def one_context_under_many_headers(count):
    lines = [line for number in range(count) for line in (f"def f{number}():", "    pass")]
    hunks = [f"@@ def f{number}():\n-    pass\n+    x" for number in range(count)]
    return lines, patch("*** Update File: f", *hunks)


def blank_lines(count):
    return [""] * count, patch("*** Add File: n", *[""] * count, "+x", "*** Delete File: n")


@pytest.mark.parametrize(
    "case", [many_hunks, hunks_of_many_lengths, repeated_lines, one_context_under_many_headers, blank_lines]
)
def test_the_cost_grows_with_file_and_patch_alone(root, case):
    def cost(count):
        lines, text = case(count)
        write(root, {"f": "".join(f"{line}\n" for line in lines).encode()})

        return functions_called(lambda: apply_patch(root, text))

    assert cost(800) < 2.6 * cost(400)


def test_the_tool(root):
    tool = patch_tool(root)
    assert tool.tool.name == "repo_browser.apply_patch"
    assert tool.tool.names == ("apply_patch",)
    assert patch_tool(root, "apply_patch").tool.names == ("repo_browser.apply_patch",)
    assert tool.tool.free_text == "patch"
    assert tool.run(patch=patch(CHANGE)).startswith("Done.")
    with pytest.raises(PatchError, match="empty"):
        tool.run()


def test_the_command(root, tmp_path, capsys):
    (tmp_path / "change").write_text(patch(CHANGE))
    assert main(["apply-patch", str(tmp_path / "change"), "--root", str(root), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"summary": ["Done.", "M a.py (+1 -1)"]}
    assert main(["apply-patch", str(tmp_path / "change"), "--root", str(root)]) == 1
    assert "line 3: the lines to change are not in 'a.py'" in capsys.readouterr().err
