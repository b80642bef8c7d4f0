"""The parts of `dataclay.contrib` that programs need to run without dataClay's services."""
