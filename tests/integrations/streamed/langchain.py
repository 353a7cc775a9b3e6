for message, _ in agent.stream(question, stream_mode="messages"):
    if message.type == "AIMessageChunk":
        print(message.content, end="")
print()
