"""One request's attempts: which mode comes next, what is adapted after a failure, what is recovered from it."""
