"""Supervision in OTP's terms; imported as `warrenmq.supervisors`."""

if __name__ != "warrenmq.supervisors":
    msg = "import warrenmq.supervisors, not supervisors: the folder is only its home in the repository"
    raise ImportError(msg)
