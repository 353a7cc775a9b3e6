"""The key of a probed server, which some servers repeat in their errors, is in nothing that the probe prints."""

import json

from upstream import Answer, completion, running

from promptools.cli import main

KEY = "sk-a-key-of-the-server"


def test_no_reason_holds_the_key(capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    refusal = json.dumps({"error": {"message": f"Tools are not supported for the key {KEY}", "code": 400}}).encode()
    with running() as server:
        server.play(completion("Hello."), *[Answer(400, (refusal,))] * 9)
        main(["probe", server.url, "--model", "m", "--checks", "native,modes", "--json"])
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    printed = capsys.readouterr()
    assert "mode native: errors" in printed.err
    assert "not supported for the" in printed.out
    assert KEY not in printed.out + printed.err
