"""The JSON and event-stream formats of the APIs: decode anything that servers send, encode exactly what clients expect.

Replies of every API decode to the same `Delta`s, so that modes and exchanges need not know which API a server has.

    chat_decoder, chat_encoder          Chat Completions, which all else is converted from and to
    messages_in, ollama_in,             requests of clients in another API, decoded to Chat Completions
    responses_in
    messages_out, ollama_out,           their responses, encoded
    responses_out
    typed_tools                         tools that an API defines by their type: a shell, an editor
    ollama_upstream, raw_endpoints,     other APIs of servers: Ollama's own, raw endpoints, and those that render a
    chat_template                       chat template; `parameters` has a rule for each parameter on each of them
    json_body, sse                      JSON off the wire, and the streams that it comes in
"""
