"""The peers; each module needs a package that only the benchmarks need."""
