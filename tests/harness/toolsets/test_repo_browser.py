"""The tools of `repo_browser`: what they show, and that no path leads out of the workspace."""

import contextlib
import os
import threading

import environments
import pytest
from deep_folders import nested
from recipes.recipe import CannotMakeError

from promptools.harness.sandbox import CommandResult, LocalSandbox
from promptools.harness.toolsets.repo_browser import (
    MAX_DEPTH,
    FileReader,
    FileSearch,
    FolderLister,
    PathError,
    WorkspaceFiles,
)

BUDGET = 10_000


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "workspace"
    (folder / "src" / "deep" / "deeper").mkdir(parents=True)
    (folder / "src" / "main.py").write_text("def main():\n    return 'needle'\n")
    (folder / "src" / "deep" / "deeper" / "low.py").write_text("x = 1\n")
    (folder / "src" / "deep" / "b.txt").write_text("a needle\r\nno\nNeedle\n")
    (folder / ".hidden").write_text("needle\n")
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "out.log").write_text("needle in a log\n")
    (folder / "data.bin").write_bytes(b"needle\0\1")
    for skipped in (".git", "node_modules"):
        (folder / skipped).mkdir()
        (folder / skipped / "inner").write_text("needle\n")
    (folder / "empty").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("needle outside\n")
    return folder


@pytest.fixture
def files(root):
    return WorkspaceFiles(root, "/testbed")


@pytest.fixture
def lister(files):
    return FolderLister(files, BUDGET)


@pytest.fixture
def reader(files):
    return FileReader(files, BUDGET)


class NoRipgrep:
    """A sandbox without ripgrep."""

    def run(self, command, **_):
        return CommandResult("not found", 127)


@pytest.fixture
def search(files):
    return FileSearch(files, NoRipgrep(), BUDGET).search


@pytest.fixture
def ripgrep(files, root, monkeypatch):
    try:
        program = environments.path_of("ripgrep")
    except CannotMakeError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    return FileSearch(files, LocalSandbox(root, allow_unsandboxed=True), BUDGET)


# -- paths


@pytest.mark.parametrize(
    "path", ["src/main.py", "./src/main.py", "/testbed/src/main.py", "src/../src/main.py", " src/main.py"]
)
def test_a_path_is_relative_or_below_the_workspace(files, path):
    assert files.locate(path) == ("src", "main.py")


def test_a_path_may_be_the_one_of_this_machine(files, root):
    assert files.locate(str(root / "src")) == ("src",)


@pytest.mark.parametrize("path", ["", ".", "/testbed", "src/.."])
def test_the_workspace_itself_has_a_path(files, path):
    assert files.locate(path) == ()


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../outside/secret",
        "/etc/passwd",
        "/",
        "src/../../outside",
        "/testbed/../outside",
        "~/x",
        "a\0b",
        "x" * 5000,
    ],
)
def test_a_path_outside_or_to_nothing_is_refused(files, path):
    with pytest.raises(PathError) as caught:
        files.locate(path)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("target", ["../outside", "../outside/secret", "/etc", "/"])
def test_a_link_that_leads_out_is_refused(files, lister, reader, search, root, target):
    (root / "link").symlink_to(target)
    for act in (lister.print_tree, lister.list_dir, reader.open_file, lambda path: search(path, "needle")):
        for path in ("link", "link/secret", "link/passwd"):
            with pytest.raises(PathError):
                act(path)
    assert "outside" not in search("", "needle")


def test_a_link_inside_is_followed_if_it_is_named(files, reader, root):
    (root / "link").symlink_to("src/main.py")
    assert "needle" in reader.open_file("link")
    (root / "loop").symlink_to("loop")
    with pytest.raises(PathError):
        reader.open_file("loop")


def test_a_folder_that_becomes_a_link_meanwhile_is_refused(files, root):
    """As a command could make it that still runs: the path was resolved, and then exchanged."""
    parts = files.locate("src/deep")
    (root / "src").rename(root / "src-before")
    (root / "src").symlink_to(root.parent / "outside")
    (root.parent / "outside" / "deep").mkdir()
    with pytest.raises(PathError, match="cannot be opened"), files.open_folder(parts):
        pass
    with pytest.raises(PathError), files.open_file((*parts, "x")):
        pass


def test_exchanging_a_folder_for_a_link_all_the_time_reveals_nothing(files, reader, root):
    (root / "real").mkdir()
    (root / "real" / "secret").write_text("inside\n")
    (root / "sham").symlink_to(root.parent / "outside")
    done = threading.Event()

    def exchange():
        while not done.is_set():
            for name in ("real", "sham"):
                (root / name).rename(root / "moving")
                done.wait(0.0001)
                (root / "moving").rename(root / name)

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        for _ in range(300):
            with contextlib.suppress(PathError):
                assert "outside" not in reader.open_file("moving/secret")
    finally:
        done.set()
        thread.join()


def test_what_is_not_a_regular_file_is_not_opened(reader, search, root):
    os.mkfifo(root / "src" / "pipe")
    with pytest.raises(PathError, match="not a regular file"):
        reader.open_file("src/pipe")
    with pytest.raises(PathError, match="a folder"):
        reader.open_file("src")
    assert "src/main.py:2:" in search("src", "needle")


# -- trees and lists


def test_a_tree(lister, root):
    (root / "link").symlink_to("/etc")
    assert lister.print_tree("", 2).split("\n") == [
        ".",
        "├── .git/ [not listed]",
        "├── .gitignore",
        "├── .hidden",
        "├── data.bin",
        "├── empty/",
        "├── link -> /etc",
        "├── node_modules/ [not listed]",
        "├── out.log",
        "└── src/",
        "    ├── deep/",
        "    └── main.py",
        "",
        "5 folders, 6 files",
    ]


def test_depth_is_how_many_levels(lister):
    assert "low.py" not in lister.print_tree("src", 2)
    assert "low.py" in lister.print_tree("src", 3)
    assert lister.print_tree("src", -5) == lister.print_tree("src", 1)
    assert lister.print_tree("src", 1.0).startswith("src\n├── deep/\n└── main.py\n")


def test_a_skipped_folder_is_listed_if_it_is_named(lister):
    assert "inner" in lister.print_tree("node_modules", 1)


def test_folders_that_are_too_deep_are_named_and_not_listed(lister, search, root):
    """3,000 levels: more than Python recurses, than a process opens files, and than a path has characters."""
    with nested(root / "empty", 3000) as deepest:
        os.close(os.open("needle.txt", os.O_CREAT | os.O_WRONLY, dir_fd=deepest))
        tree, paths = lister.print_tree("empty", 5000), lister.list_dir("empty", float("inf"))
        found = search("empty", "needle")
        for call in (lister.print_tree, lister.list_dir, lambda path: search(path, "needle")):
            with pytest.raises(PathError, match="cannot be resolved: File name too long"):
                call("empty/" + "d/" * 3000)
    note = " [deeper folders are not listed: name one as the path]"
    assert tree.endswith(f"└── d/{note}\n\n{MAX_DEPTH} folders, 0 files")
    assert paths.endswith("d/" * MAX_DEPTH + note)
    assert found.startswith("[no matches]\n[folders more than 100 levels deep were not searched, such as 'empty/d/d/")


def test_a_long_chain_of_links_is_refused(lister, reader, search, root):
    for number in range(1200):
        (root / "empty" / str(number)).symlink_to(str(number + 1))
    (root / "empty" / "1200").mkdir()
    for call in (lister.print_tree, lister.list_dir, reader.open_file, search):
        with pytest.raises(PathError, match=r"cannot be resolved: (too many links|Too many levels of symbolic links)"):
            call("empty/0", **({"query": "x"} if call is search else {}))


def test_a_list(lister):
    assert lister.list_dir("src").split("\n") == ["src/deep/", "src/main.py"]
    assert lister.list_dir("/testbed/src", 2).split("\n") == [
        "src/deep/", "src/deep/b.txt", "src/deep/deeper/", "src/main.py",
    ]  # fmt: skip
    assert lister.list_dir("empty") == "[the folder is empty]"
    with pytest.raises(PathError, match="not a folder"):
        lister.list_dir("src/main.py")


def test_a_large_folder_is_not_listed_whole(lister, root):
    for number in range(1000):
        (root / "empty" / f"{number:04}").touch()
    lines = lister.list_dir("empty").split("\n")
    assert lines[-1] == "[800 more are not listed]"
    assert len(lines) == 201
    assert "[800 more are not listed]" in lister.print_tree("", 3)


def test_a_large_tree_is_cut_in_its_middle(files):
    text = FolderLister(files, 60).print_tree("", 3)
    assert text.startswith(".\n")
    assert "were left out here" in text
    assert text.endswith("\n\n6 folders, 6 files")


# -- files


def test_a_file_has_line_numbers(reader):
    assert reader.open_file("src/main.py") == "     1\tdef main():\n     2\t    return 'needle'"
    assert reader.open_file("src/main.py", line_numbers=False) == "def main():\n    return 'needle'"


@pytest.mark.parametrize(
    ("start", "end", "shown"),
    [
        (2, 3, [2, 3]),
        (None, 2, [1, 2]),
        (9, None, [9, 10]),
        (9, 99, [9, 10]),
        (0, 1, [1]),
        (9, -1, [9, 10]),
        (2.0, 2.0, [2]),
    ],
)
def test_some_lines_of_a_file(reader, root, start, end, shown):
    (root / "ten").write_text("".join(f"line {number}\n" for number in range(1, 11)))
    text = reader.open_file("ten", start, end)
    assert text.split("\n") == [f"{number:6}\tline {number}" for number in shown]


def test_lines_that_are_not_there(reader, root):
    with pytest.raises(PathError, match="has 2 lines; there is no line 7"):
        reader.open_file("src/main.py", 7)
    with pytest.raises(ValueError, match="before line_start"):
        reader.open_file("src/main.py", 5, 2)
    (root / "none").touch()
    assert reader.open_file("none") == "[none is empty]"


def test_a_long_file_is_shown_as_far_as_the_budget_goes(files, root):
    (root / "long").write_text("".join(f"line {number}\n" for number in range(1, 1001)))
    lines = FileReader(files, 200).open_file("long", 5, 500).split("\n")
    assert lines[0] == "     5\tline 5"
    last = int(lines[-2].split()[-1])
    assert lines[-1] == f"[lines {last + 1} to 500 are not shown; the file has 1000 lines]"
    assert 150 < len("\n".join(lines[:-1])) <= 200


def test_long_lines_and_odd_bytes(reader, root):
    (root / "wide").write_bytes(b"x" * 5000 + b"\n\xff\xfe")
    first, second = reader.open_file("wide").split("\n")
    assert first.endswith("x [3000 more characters in this line]")
    assert second == "     2\t\ufffd\ufffd"
    assert reader.open_file("data.bin") == "[data.bin is not text: 8 bytes]"


# -- searches

EXPECTED = [
    ".hidden:1:needle",
    "out.log:1:needle in a log",
    "src/deep/b.txt:1:a needle",
    "src/main.py:2:    return 'needle'",
]


def test_a_search_has_paths_and_line_numbers(search):
    assert search("", "needle").split("\n") == EXPECTED
    assert search("src", "[Nn]ee+dle$").split("\n") == ["src/deep/b.txt:1:a needle", "src/deep/b.txt:3:Needle"]
    assert search("src/main.py", r"^def (\w+)") == "src/main.py:1:def main():"
    assert search("node_modules", "needle") == "node_modules/inner:1:needle"
    assert search("", "not there") == "[no matches]"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("", "needle"), ("src", "needle"), ("src/main.py", "ne+dle"), ("node_modules", "needle"), ("src", "nothing"),
        ("", "^x"), (".", "(unbalanced"), ("", "--files"), ("empty", "x"), ("src", r"\bmain\b"),
    ],
)  # fmt: skip
@pytest.mark.bubblewrap  # what is installed for these tests is there for it, too
def test_ripgrep_returns_the_same(ripgrep, search, path, query):
    assert ripgrep.search(path, query) == search(path, query)
    assert ripgrep._has_ripgrep


def test_results_are_counted(search, root):
    (root / "many").write_text("hit\n" * 50)
    lines = search("many", "hit").split("\n")
    assert lines[-2:] == [
        "many:20:hit",
        "[only the first 20 results are shown; narrow the search, or raise max_results]",
    ]
    assert len(search("many", "hit", 3).split("\n")) == 4
    assert len(search("many", "hit", 50.0).split("\n")) == 50


def test_what_is_not_a_regular_expression_is_searched_for_as_it_is(search):
    text = search("src", "main(")
    assert text.startswith("src/main.py:1:def main():\n[the query is not a regular expression")
    with pytest.raises(ValueError, match="empty"):
        search("src", "")


def test_an_expression_that_takes_for_ever_is_ended(search, root, monkeypatch):
    monkeypatch.setattr("promptools.harness.toolsets.repo_browser.SECONDS", 0.1)
    (root / "evil").write_text("a" * 60 + "b\n")
    assert "was ended after 0.1 seconds" in search("evil", "(a|aa|a?)+$")


def test_a_long_line_is_cut(search, root):
    (root / "wide").write_text("needle" + "x" * 5000)
    assert search("wide", "needle").endswith("more characters)")
