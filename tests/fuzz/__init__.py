"""Whatever peers send: no input may surprise, and none may cost more than a multiple of its
length. `python -m tests.fuzz.run` looks for inputs that do, `corpus/` keeps what it met."""
