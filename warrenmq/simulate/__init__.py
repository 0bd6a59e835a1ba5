"""Simulation fuzzing: thousands of simulated runs of the whole broker, each reproducible from its seed."""
