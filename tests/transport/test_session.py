"""What a client or proxy keeps from request to request."""

import logging
from datetime import UTC, datetime, timedelta

import pytest

from promptools.errors import UsageError
from promptools.fallback import Breaker
from promptools.harmony import bpe_vocabulary
from promptools.profiles import Config, Provider
from promptools.transport import Session, session
from promptools.transport.session import local_vocabulary, new_call_id, resolve_config


def test_ids_fit_every_server():
    ids = {new_call_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(each) == 9 and each.isalnum() and each.isascii() for each in ids)


def test_what_was_resolved_is_remembered_and_bounded(monkeypatch):
    monkeypatch.setattr(session, "MAX_CACHED_ROUTES", 3)
    own = Session({"config": Config()})
    first = own.resolve_target("a", base_url="http://x/v1")
    assert own.resolve_target("a", base_url="http://x/v1") is first
    for model in "bcde":
        own.resolve_target(model, base_url="http://x/v1")
    assert own.resolve_target("a", base_url="http://x/v1") is not first


def test_a_change_keeps_all_else():
    breaker = Breaker()
    own = Session({"config": Config(), "breaker": breaker, "deadline": 3.0, "mode": "prompt", "trace": True})
    other = own.with_settings({"trace": False})
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
        resolve_config(path)
    assert "surprise" in caplog.text


def test_another_provider_without_an_address_is_refused():
    config = Config(providers={"bare": Provider("bare", kind="openai-compatible")})
    own = Session({"config": config})
    with pytest.raises(UsageError, match="base_url"):
        own.route_to_provider(own.resolve_target("m", provider="bare"), ())


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """A machine without the vocabulary; gives the place where it would be kept."""
    monkeypatch.setenv(bpe_vocabulary.FOLDER_VARIABLE, "")
    monkeypatch.setenv(bpe_vocabulary.CACHE_VARIABLE, str(tmp_path))
    local_vocabulary.cache_clear()
    bpe_vocabulary.load_encoding.cache_clear()
    yield tmp_path / "harmony" / bpe_vocabulary.FILE_NAME
    local_vocabulary.cache_clear()
    bpe_vocabulary.load_encoding.cache_clear()


def test_token_ids_are_used_where_the_vocabulary_lies(nowhere, monkeypatch):
    monkeypatch.setattr(bpe_vocabulary, "load_codec", lambda file: file)
    monkeypatch.setattr(session, "find_spec", lambda name: name)
    assert local_vocabulary() is None
    nowhere.parent.mkdir()
    nowhere.write_text("")
    local_vocabulary.cache_clear()
    assert local_vocabulary() == nowhere
    local_vocabulary.cache_clear()
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    assert local_vocabulary() is None


def test_a_file_that_is_another_is_named_and_left_alone(nowhere, caplog):
    pytest.importorskip("openai_harmony")
    nowhere.parent.mkdir()
    nowhere.write_text("aGk= 0\n")
    with caplog.at_level(logging.WARNING):
        assert local_vocabulary() is None
    assert "token ids are not used" in caplog.text


def test_the_date_and_the_time_are_those_of_here():
    told = Session({"config": Config()}).context.wall_clock()
    assert abs(told - datetime.now(UTC)) < timedelta(minutes=1)
    assert told.tzinfo is not None
