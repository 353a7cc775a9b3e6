"""Arguments that the rules of benchmarks/models allow, for tests that need a right call."""


def first(value):
    """The first value that a pattern allows."""
    match value:
        case {"any": [one, *_], **others} if not others:
            return first(one)
        case dict():
            return {key: first(each) for key, each in value.items()}
    return value
