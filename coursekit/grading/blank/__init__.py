"""What lies in the place of the checks while students' code runs: whatever it asks of them does nothing."""


class Nothing:
    def __getattr__(self, name):
        return lambda *args, **kwargs: None


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Nothing()
