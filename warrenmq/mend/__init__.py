"""What moves or mends data directories: `warrenmq recover`, `repair` and `compact`."""
