"""What all commands have in common: help, the words that were meant, and how much they say."""

import logging

import pytest

import promptools
from promptools.cli import COMMANDS, FIRST_STEPS, build_parser, main
from promptools.cli.terminal_output import print_progress
from promptools.log import log


def refused(capsys, *arguments):
    """Run a command whose arguments are wrong; return the one line that says so."""
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


def shown(capsys, *arguments):
    """Run a command that ends by itself, with success; return its output."""
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 0
    return capsys.readouterr().out


def test_without_a_command_there_is_help_and_no_success(capsys):
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    for command in COMMANDS:
        assert f"\n    {command.name}" in err


@pytest.mark.parametrize("words", [[], ["chat"], ["eval", "aime"]])
def test_help_of_a_command(capsys, words):
    helped = shown(capsys, "help", *words)
    assert helped == shown(capsys, *words, "--help")
    assert helped.startswith(" ".join(["usage: promptools", *words]))


def test_the_first_steps_are_commands(capsys):
    assert FIRST_STEPS in shown(capsys, "--help")
    steps = [line.split("   ")[0].split()[1:] for line in FIRST_STEPS.splitlines()[1:]]
    assert [step[0] for step in steps] == ["demo", "doctor", "serve", "help"]
    for step in steps:
        words = ["http://localhost:8000/v1" if word == "URL" else word for word in step]
        if words[0] == "help":
            assert shown(capsys, *words).startswith("usage: promptools serve")
        else:
            assert build_parser().parse_args(words).command == words[0]


def test_the_version(capsys):
    assert main(["version"]) == 0
    told = capsys.readouterr().out
    assert told == shown(capsys, "--version") == f"promptools {promptools.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["sreve"], "promptools: there is no command 'sreve'; did you mean 'serve'? known: agent, "),
        (["help", "chta"], "promptools: there is no command 'chta'; did you mean 'chat'?"),
        (["config", "shwo"], "promptools config: there is no action 'shwo'; did you mean 'show'? known: show, trust"),
        (["eval", "aim"], "promptools eval: there is no benchmark 'aim'; did you mean 'aime'? known: aime, bfcl, "),
        (["chat", "--base-ulr", "x"], "promptools chat: there is no option '--base-ulr'; did you mean '--base-url'?"),
        (["--versoin"], "promptools: there is no option '--versoin'; did you mean '--version'?"),
        (["eval", "aime", "f", "--ouput", "x"], "promptools eval aime: there is no option '--ouput'; did you mean '"),
        (
            ["chat", "--mode", "natvie"],
            "argument --mode: 'natvie' is not a valid choice; did you mean 'native'? known: har",
        ),
        (
            ["serve", "--mode", "x"],
            "argument --mode: 'x' is not a valid choice; known: harmony, native, prompt, raw (try",
        ),
        (["chat", "a", "b"], "promptools chat: unexpected argument 'b'"),
        (["chat", "-z"], "promptools chat: there is no option '-z'"),
    ],
)
def test_what_was_probably_meant(capsys, arguments, meant):
    err = refused(capsys, *arguments)
    assert meant in err
    assert err.endswith("--help)\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["parse", "/dev/null", "--dialect", "hermse"],
        ["parse", "/dev/null", "--accept", "hermse"],
        ["dialects", "hermse"],
        ["render", "--dialect", "hermse"],
        ["serve", "--base-url", "http://127.0.0.1:9/v1", "--dialect", "hermse"],
    ],
)
def test_the_dialect_that_was_probably_meant(capsys, arguments):
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert "'hermse'" in err
    assert "did you mean 'hermes'?" in err


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ([], ["progress", "promptools: to act on"]),
        (["--quiet"], []),
        (["--verbose"], ["progress", "promptools: healed", "promptools: to act on"]),
    ],
)
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_how_much_a_command_says(capsys, monkeypatch, option, told, before):
    from promptools.cli import version_command

    def run(arguments):
        print_progress("progress")
        log.info("healed")
        log.warning("to act on")
        log.error("broken")
        return 0

    monkeypatch.setattr(version_command, "run", run)
    assert main([*option, "version"] if before else ["version", *option]) == 0
    assert capsys.readouterr() == ("", "".join(f"{line}\n" for line in [*told, "promptools: broken"]))
    assert log.level == logging.NOTSET
    print_progress("again")
    assert capsys.readouterr().err == "again\n"


def test_quiet_and_verbose_exclude_each_other(capsys):
    assert "not allowed with" in refused(capsys, "version", "--quiet", "--verbose")
