"""Train the runs of every table about quality with one pool of processes that share a GPU.

A cell is one run: data, model, settings and a seed. `tables` trains the cells that the documentation's tables need, and
`run` those of a YAML file.
"""
