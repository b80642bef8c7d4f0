"""The kernels of a particle simulation: VPIC-IO, which writes, and BDCATS-IO, which reads."""
