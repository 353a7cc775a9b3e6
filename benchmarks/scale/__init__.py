"""What many streams cost: figures of the real proxy, a simulation that starts from them, and how well the two agree.

`measuring` writes what it measures to `figures.json`; `simulation` knows nothing but those figures; `comparison` runs
the real proxy and the simulation under the same load; `planning` asks the simulation for the number of workers.
"""
