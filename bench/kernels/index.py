"""A stand-in for MIQS+."""


class Index:
    def __init__(self):
        self.keys = {}
        self.paths = []

    def insert(self, path, attrs):
        n = len(self.paths)
        self.paths.append(path)
        for k, v in attrs.items():
            self.keys.setdefault(k, {}).setdefault(v, []).append(n)
