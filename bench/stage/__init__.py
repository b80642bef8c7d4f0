"""Stages: trees of files brought into a pool and back, beside what copies files elsewhere."""
