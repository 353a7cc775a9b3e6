"""What is asked of the clients that run tools which an API defines: each question is about another fruit."""

NOTES = "notes.md"
PATCHES, LOCAL, CUSTOM, EDITS = "quince", "medlar", "damson", "rowan"
QUESTIONS = {
    PATCHES: "Note the fruit of fruit.txt in notes.md.",
    LOCAL: "Which fruit does a local shell find in fruit.txt?",
    CUSTOM: "Which fruit is it, if it is looked up?",
    EDITS: "Note the fruit of fruit.txt in notes.md and in your memory.",
}


def read_notes(folder):
    """Return what a folder's notes say; None without notes."""
    path = folder / NOTES
    return path.read_text(encoding="utf-8") if path.exists() else None
