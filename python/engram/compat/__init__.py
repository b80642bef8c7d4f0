"""Programs written for other stores of active objects, with their import lines changed."""
