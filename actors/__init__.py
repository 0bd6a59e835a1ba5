"""The processes of the Erlang design, one module each; imported as `warrenmq.actors`."""

if __name__ != "warrenmq.actors":
    raise ImportError("import warrenmq.actors, not actors: the folder is only its home in the repository")
