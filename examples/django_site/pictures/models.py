"""The pictures of the site."""

from django.db import models


class Picture(models.Model):
    """One picture; `small` is empty until a worker has been there."""

    name = models.CharField(max_length=100, unique=True)
    small = models.CharField(max_length=100, default="")

    def __str__(self) -> str:
        return self.name
