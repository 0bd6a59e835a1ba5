"""Moving and mending of data directories: `warrenmq recover`, `repair` and `compact`."""
