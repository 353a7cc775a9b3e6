"""What many streams cost: the figures of one worker of the proxy, and what many workers need according to them.

`measuring` writes the figures to `figures.json`. `planning` computes from them how many workers are needed.
`comparison` runs the real proxy under several loads, and shows how far the figures are off.
"""
