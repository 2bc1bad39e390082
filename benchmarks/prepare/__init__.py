"""The inputs of the comparisons in docs/results.md, each made from its source by one command.

python -m benchmarks.prepare NAME SOURCE FOLDER
"""
