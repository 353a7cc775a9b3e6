"""The modes: how a request asks for tools, and how the reply is turned into events and a verdict.

tool_request      a client's request, parsed and checked; its `options` prepared_request  what the modes share; then a
module with each mode's function: `native_mode`, `prompt_mode`,                   `harmony_mode`, `raw_mode`; `registry`
maps names to them, and decides which modes a request may use history           the conversation as turns, and in a form
that a server's template accepts; `foreign_text` escapes what                   the app did not write, `tool_names`
renames what the server does not accept reply_reader      one choice of a reply as events: `structured_calls` of the
server, `bare_arguments`, calls in text;                   `call_filter` decides which calls are passed on verdict
whether a whole reply is an answer; `response_format`, whether it has the requested format
"""
