"""The program `apply_patch`, which commands of every sandbox find on their path."""


def check_apply_patch(sandbox, root):
    """Have commands of all forms patch a file of the workspace `root`, and one whose patch does not fit."""
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-{old}\n+{new}\n*** End Patch\n"
    ways = [
        lambda patch: ["apply_patch", patch],
        lambda patch: ["bash", "-lc", f"apply_patch <<'EOF'\n{patch}EOF"],
        lambda patch: f"cd . && apply_patch <<'EOF'\n{patch}EOF",
    ]
    (root / "json.py").write_text("raise SystemExit('a module of the workspace was imported')")
    (root / "a.txt").write_text("0\n")
    for number, way in enumerate(ways):
        done = sandbox.run(way(patch.format(old=number, new=number + 1)))
        assert (done.exit_code, done.output) == (0, "Done.\nM a.txt (+1 -1)\n")
        assert (root / "a.txt").read_text() == f"{number + 1}\n"
    failed = sandbox.run(["apply_patch", patch.format(old="é", new="x")])
    assert failed.exit_code == 1
    assert failed.output.startswith("No file was changed.\n")
