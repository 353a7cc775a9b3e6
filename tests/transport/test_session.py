"""What a client or proxy keeps from request to request."""

import logging

import pytest

from promptools.errors import UsageError
from promptools.fallback import Breaker
from promptools.profiles import Config, Provider
from promptools.transport import Session, session
from promptools.transport.session import new_id, read_config


def test_ids_fit_every_server():
    ids = {new_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(each) == 9 and each.isalnum() and each.isascii() for each in ids)


def test_what_was_resolved_is_remembered_and_bounded(monkeypatch):
    monkeypatch.setattr(session, "ROUTES", 3)
    own = Session({"config": Config()})
    first = own.target("a", base_url="http://x/v1")
    assert own.target("a", base_url="http://x/v1") is first
    for model in "bcde":
        own.target(model, base_url="http://x/v1")
    assert own.target("a", base_url="http://x/v1") is not first


def test_a_change_keeps_all_else():
    breaker = Breaker()
    own = Session({"config": Config(), "breaker": breaker, "deadline": 3.0, "mode": "prompt", "trace": True})
    other = own.changed({"trace": False})
    assert other.context.breaker is breaker
    assert other.config is own.config
    assert other.context.deadline == 3.0
    assert (other.context.options.mode, other.context.options.trace) == ("prompt", False)
    assert own.context.options.trace


def test_unknown_settings_are_named():
    with pytest.raises(UsageError, match="colour"):
        Session({"colour": "red"})


def test_warnings_of_a_config_are_logged(tmp_path, caplog):
    path = tmp_path / "ppxai-config.json"
    path.write_text('{"version": "1.0", "surprise": 1, "providers": {}}')
    with caplog.at_level(logging.WARNING):
        read_config(path)
    assert "surprise" in caplog.text


def test_another_provider_without_an_address_is_refused():
    config = Config(providers={"bare": Provider("bare", kind="openai-compatible")})
    own = Session({"config": config})
    with pytest.raises(UsageError, match="base_url"):
        own.elsewhere(own.target("m", provider="bare"), ())
