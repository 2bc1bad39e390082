"""Make the inputs of the comparisons in docs/results.md, each from its source with one command.

python -m benchmarks.prepare NAME SOURCE FOLDER
"""
