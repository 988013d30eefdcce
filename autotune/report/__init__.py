"""Rows and values as people and programs read them.

text.py      figures and configs in words
formats.py   JSON and CSV
tables.py    tables of a terminal
bench.py, devices.py, results.py, search.py, spaces.py   what stands in them
plots.py     pictures of recorded figures
"""
