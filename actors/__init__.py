"""The broker's processes, a folder for each kind; imported as `warrenmq.actors`."""

if __name__ != "warrenmq.actors":
    raise ImportError("import warrenmq.actors, not actors: the folder is only its home in the repository")
