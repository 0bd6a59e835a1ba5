"""The settings of the site."""

import os
from pathlib import Path

DATA = Path(os.environ.get("SITE_DATA", "data"))
DATA.mkdir(exist_ok=True)
JOBS_DIRECTORY = DATA / "jobs"

SECRET_KEY = "for an example only"  # noqa: S105
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
INSTALLED_APPS = ["pictures"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": DATA / "site.sqlite3",
        # a transaction that writes waits for its turn at its beginning, where waiting can end well
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TIME_ZONE = "UTC"
ROOT_URLCONF = "pictures.views"
