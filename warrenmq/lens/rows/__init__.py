"""Handlers of trace events for the picture: a module for each kind of actor, a function for each event."""
