"""The states of the parser, as functions over `promptools.engine.state.ParserState`, in modules by subject."""
