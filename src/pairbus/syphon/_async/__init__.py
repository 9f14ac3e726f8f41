"""The parts of the syphon that wait: for namespaces, for time, for each other."""
