"""The modes: how a request asks for tools, and how the reply is turned into events and a verdict.

The modules are:

tool_request      parses and checks a client's request; `options` defines the request's options
prepared_request  what the modes share. Each mode has a module with its function: `native_mode`, `prompt_mode`,
                  `harmony_mode`, `raw_mode`; `registry` maps the modes' names to these functions, and decides which
                  modes a request may use
history           the conversation as turns, and in a form that a server's template accepts; `foreign_text` escapes
                  markup in text that the app did not write, `tool_names` renames tools whose names are not accepted
reply_reader      reads one choice of a reply as events: calls in text, calls that the server parsed
                  (`structured_calls`), replies that are only arguments (`bare_arguments`); `call_filter` decides which
                  calls are passed on
verdict           decides whether a whole reply is an answer; `response_format` checks the requested format
"""
