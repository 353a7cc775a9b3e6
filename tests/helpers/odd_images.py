"""Values of `images` in Ollama's API, that are images and that are none; a real Ollama is asked, too (tests/e2e)."""

PIXEL = "iVBORw0KGgo="
NONE: list = [None, []]
"""No images, and no error."""
IMAGES = [[PIXEL], [PIXEL[:4] + "\r\n" + PIXEL[4:]], [[137, 80, 78, 71]]]
WRONG = [
    "x",
    PIXEL,
    1,
    True,
    {},
    {"a": 1},
    [1],
    [True],
    [{"a": 1}],
    ["not base64!"],
    [PIXEL[:-1]],
    ["__79"],
    [f"data:image/png;base64,{PIXEL}"],
    [[1, "x"]],
    [[256]],
    [PIXEL, 1],
]
EMPTY: list = [[""], [None], [[]]]
"""An image without a byte, which a real Ollama refuses later, when the model looks at it."""
