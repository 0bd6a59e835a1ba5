"""The lens: a page that shows a broker at work, row by row of its trace, forwards and backwards (docs/lens.md)."""
