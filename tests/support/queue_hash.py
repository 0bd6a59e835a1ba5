"""RabbitMQ's names of folders, computed once more so that tests do not ask the code that they test."""

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def base36(digest: bytes) -> str:
    number, text = int.from_bytes(digest, "big"), ""
    while number:
        number, digit = divmod(number, 36)
        text = DIGITS[digit] + text
    return text or "0"
