"""A trace, or a part of it, in the formats of other tools: Perfetto, ShiViz, Parquet."""
