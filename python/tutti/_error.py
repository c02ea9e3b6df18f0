"""The exception every failure of the runtime becomes."""


class Error(Exception):
    """What went wrong outside this process, in the words of the runtime.

    ``code`` is what a program may act on: "not_found", "unavailable", "deadline", …; the text is
    for people and may change.
    """

    def __init__(self, message: str, code: str = "internal") -> None:
        super().__init__(message, code)
        self.message = message
        self.code = code

    def __str__(self) -> str:
        return self.message
