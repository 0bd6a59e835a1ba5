"""What each event of the trace changes in the picture: a module for each kind of actor, a function for each event."""
