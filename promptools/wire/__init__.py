"""The JSON and event-stream formats of the APIs: decode anything that servers send, encode exactly what clients expect.

Replies of every API are decoded to the same `Delta`s, so modes and exchanges are independent of the server's API.

    chat_decoder, chat_encoder          Chat Completions, to and from which every other API is converted
    messages_in, ollama_in,             requests of clients in another API, decoded to Chat Completions
    responses_in
    messages_out, ollama_out,           the responses to such clients, encoded
    responses_out
    typed_tools                         tools that an API defines by their type: a shell, an editor
    ollama_upstream, raw_endpoints,     other APIs of servers: Ollama's own, raw endpoints, and endpoints that render a
    chat_template                       chat template; `parameters` has a rule for each parameter and endpoint
    json_body, sse                      JSON from the network, and the streams that it arrives in
"""
