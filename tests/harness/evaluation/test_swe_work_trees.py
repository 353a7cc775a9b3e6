"""Work trees of real git: at which commit they are, and that patches hold all changes and apply."""

import shutil

import pytest
from swe_project import FILES, git, make_clone, write

from promptools.errors import UsageError
from promptools.harness.evaluation.swe_workspaces import GitError, WorkTreeChanges, check_commit, check_out, find_clone


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clones") / "own" / "sums"
    return folder, make_clone(folder)


@pytest.fixture
def tree(clone, tmp_path):
    """A work tree at the commit, and what it is compared with."""
    root = tmp_path / "tree"
    root.mkdir()
    check_out(*clone, root)
    return root, WorkTreeChanges(root, tmp_path / "first.git")


@pytest.fixture
def applied(clone, tmp_path):
    """Apply a patch to another work tree at the commit; return that."""

    def apply(patch):
        root = tmp_path / "applied"
        root.mkdir()
        check_out(*clone, root)
        git("apply", "-", cwd=root, stdin=patch.encode())
        return root

    return apply


def contents(root):
    paths = (path for path in root.rglob("*") if path.is_file() and ".git" not in path.relative_to(root).parts)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def test_a_work_tree_has_the_commit_and_none_after_it(clone, tree):
    root, changes = tree
    assert contents(root) == {name: text if isinstance(text, bytes) else text.encode() for name, text in FILES.items()}
    assert git("log", "--all", "--format=%s", cwd=root) == "first"
    solution = git("rev-parse", "solved", cwd=clone[0])
    assert solution not in git("cat-file", "--batch-all-objects", "--batch-check", cwd=root)
    assert git("remote", cwd=root) == ""
    assert changes.patch() == ""


def test_what_running_a_program_leaves_behind_is_not_a_change_without_gitignore_too(clone, tmp_path):
    root = tmp_path / "tree"
    root.mkdir()
    check_out(*clone, root)
    (root / ".gitignore").unlink(missing_ok=True)
    changes = WorkTreeChanges(root, tmp_path / "first.git")
    write(root, {"__pycache__/sums.cpython-313.pyc": b"\0", "docs/old.pyc": b"\0", "new.py": "x = 1\n"})
    assert [line for line in changes.patch().splitlines() if line.startswith("diff")] == [
        "diff --git a/new.py b/new.py"
    ]


def test_a_patch_holds_all_changes_and_applies(tree, applied):
    root, changes = tree
    write(
        root,
        {
            "sums.py": FILES["sums.py"].replace("a - b", "a + b"),
            "new/module.py": "x = 1\n",
            "test_sums.py": "def test_nothing():\n    pass\n",
            "picture.bin": bytes(range(256)),
            "größe.txt": "no end of line",
            "kept.log": "changed\n",
            "build/out.o": "ignored\n",
            "other.log": "ignored\n",
        },
    )
    (root / "docs" / "notes.txt").rename(root / "docs" / "renamed.txt")
    (root / "sums.py").chmod(0o755)
    (root / "link").symlink_to("sums.py")
    patch = changes.patch()
    after = applied(patch)
    expected = contents(root)
    del expected["build/out.o"], expected["other.log"]
    assert contents(after) == expected
    assert (after / "sums.py").stat().st_mode & 0o111
    assert (after / "link").is_symlink()
    assert not (after / "docs" / "notes.txt").exists()


def test_text_that_is_not_utf_8(tree, applied):
    root, changes = tree
    write(root, {"latin.txt": b"caf\xe9s\n", "sums.py": "x = 1\n"})
    patch = changes.patch()
    assert "GIT binary patch" in patch
    assert contents(applied(patch)) == contents(root)


def commit_all(root):
    git("add", "--all", ".", cwd=root)
    git("commit", "-qm", "of the model", cwd=root)


def stash_and_pop(root):
    git("stash", cwd=root)
    git("stash", "pop", cwd=root)


def remove_repository(root):
    shutil.rmtree(root / ".git")


def ignore_by_settings(root):
    (root / ".git" / "info").mkdir(exist_ok=True)
    (root / ".git" / "info" / "exclude").write_text("*\n")
    git("update-index", "--assume-unchanged", "sums.py", cwd=root)


@pytest.mark.parametrize("tamper", [commit_all, stash_and_pop, remove_repository, ignore_by_settings])
def test_what_the_model_does_to_its_repository_does_not_matter(tree, tamper):
    root, changes = tree
    write(root, {"sums.py": FILES["sums.py"].replace("a - b", "a + b")})
    tamper(root)
    lines = changes.patch().splitlines()
    assert [line for line in lines if line.startswith("diff ")] == ["diff --git a/sums.py b/sums.py"]
    assert [line for line in lines if line[:2] in {"- ", "+ "}] == ["-    return a - b", "+    return a + b"]


def test_repositories_in_the_work_tree_run_nothing_and_hide_nothing(tree, tmp_path):
    root, changes = tree
    inner = root / "inner"
    inner.mkdir()
    git("init", "-q", ".", cwd=inner)
    write(inner, {"file.py": "y = 1\n"})
    commit_all(inner)
    for folder in (root, inner):
        for name in ("core.fsmonitor", "diff.external", "filter.f.clean", "core.sshCommand"):
            git("config", name, f"touch {tmp_path}/ran; cat", cwd=folder)
        hook = folder / ".git" / "hooks" / "post-index-change"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        hook.chmod(0o755)
    write(root, {".gitattributes": "*.py filter=f diff=f\n"})
    patch = changes.patch()
    assert "+++ b/inner/file.py" in patch
    assert not (tmp_path / "ran").exists()


def test_submodules_are_left_out(tmp_path, clone):
    outer = tmp_path / "outer"
    write(outer, {"file.py": "x = 1\n"})
    git("init", "-q", ".", cwd=outer)
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(clone[0]), "part", cwd=outer)
    git("add", "--all", ".", cwd=outer)
    git("commit", "-qm", "first", cwd=outer)
    changes = WorkTreeChanges(outer, tmp_path / "first.git")
    git("config", "core.fsmonitor", f"touch {tmp_path}/ran; cat", cwd=outer / "part")
    write(outer, {"part/sums.py": "changed\n", "file.py": "x = 2\n"})
    patch = changes.patch()
    assert patch.count("diff --git") == 1
    assert "+x = 2" in patch
    assert not (tmp_path / "ran").exists()


def test_changes_before_the_model_began_are_not_in_the_patch(clone, tmp_path):
    """As in images whose build has changed files of the repository."""
    root = tmp_path / "tree"
    root.mkdir()
    check_out(*clone, root)
    write(root, {"sums.py": "built = 1\n", "added.py": ""})
    changes = WorkTreeChanges(root, tmp_path / "first.git")
    assert changes.patch() == ""
    write(root, {"sums.py": "built = 2\n"})
    assert "-built = 1\n+built = 2\n" in changes.patch()


@pytest.mark.parametrize("name", ["own/sums", "own__sums", "sums"])
def test_names_of_clones(tmp_path, clone, name):
    git("clone", "-q", str(clone[0]), str(tmp_path / name), cwd=tmp_path)
    assert find_clone(tmp_path, "own/sums") == (tmp_path / name).resolve()


def test_a_bare_clone(tmp_path, clone):
    git("clone", "-q", "--bare", str(clone[0]), "sums", cwd=tmp_path)
    found = find_clone(tmp_path, "own/sums")
    check_commit(found, clone[1])
    (tmp_path / "tree").mkdir()
    check_out(found, clone[1], tmp_path / "tree")
    assert (tmp_path / "tree" / "sums.py").exists()


def test_what_is_not_there(tmp_path, clone):
    with pytest.raises(UsageError, match="there is no clone of 'own/sums': git clone it into"):
        find_clone(tmp_path, "own/sums")
    with pytest.raises(UsageError, match="has no commit 0123456789"):
        check_commit(clone[0], "0123456789")
    with pytest.raises(GitError, match="there is no git repository in"):
        WorkTreeChanges(tmp_path, tmp_path / "first.git")


def test_without_git(clone, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"^git is not installed"):
        check_commit(*clone)
