"""What many streams cost: figures of one worker of the proxy, and what follows from them for many.

`measuring` writes what it measures to `figures.json`; `planning` computes from it how many workers are needed;
`comparison` runs the real proxy under several loads, and shows how far the figures are off.
"""
