from __future__ import annotations

import pickle

import pytest

from warrenmq import errors

PUBLIC = ["AccessRefused", "ArgumentTypeError", "ArgumentValueError", "AskFailed", "Blocked", "BrokerClosed", "CallerError", "CommandInvalid", "CorruptFile", "DirectoryInUse", "Error",
          "Fenced", "ForkedProcess", "Nacked", "NotFound", "PreconditionFailed", "ProcessDied", "Refusal", "ResourceError", "ResourceLocked", "Returned",
          "SettingsError"]  # fmt: skip


def test_the_public_names_are_these() -> None:
    assert sorted(name for name in vars(errors) if isinstance(vars(errors)[name], type)) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_error_is_a_warrenmq_error(name: str) -> None:
    assert issubclass(getattr(errors, name), errors.Error)


def test_no_error_of_ours_stands_for_a_failing_disk() -> None:
    assert not any(issubclass(getattr(errors, name), OSError) for name in PUBLIC)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            errors.DirectoryInUse("/data", 42, "warren", "2026-01-02 03:04:05"),
            "/data is in use by process 42 on warren, which opened it at 2026-01-02 03:04:05; "
            "close that broker, choose another directory, or share this one: open it with shared=True in every process, "
            "or have `warrenmq serve` own it.",
        ),
        (errors.CorruptFile("0.idx", 34, "no record begins with 00"),
         "0.idx is damaged at byte 34: no record begins with 00."),
        (errors.Returned("", "jobs"),
         "exchange '' routed a mandatory message with key 'jobs' to no queue; "
         "bind a queue or publish it without mandatory."),
    ],
)  # fmt: skip
def test_an_error_is_one_sentence_and_survives_pickling(error: errors.Error, text: str) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert str(error) == str(again) == text
    assert vars(again) == vars(error)
