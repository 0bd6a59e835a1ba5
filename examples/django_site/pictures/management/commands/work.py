"""`manage.py work`: one worker, until SIGTERM or Ctrl-C."""

import logging
import signal
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import close_old_connections
from pictures.jobs import queue
from pictures.models import Picture


class Command(BaseCommand):
    """Takes one job at a time; a job whose worker is killed is done by another one, so a job may be done twice."""

    help = "Make pictures small, as long as it runs."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--missed", action="store_true", help="first give a job to every picture that waits"
        )

    def handle(self, *_: Any, missed: bool, **__: Any) -> None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        jobs = queue()
        if missed:
            jobs.publish_many([b"%d" % each.pk for each in Picture.objects.filter(small="")]).result()
        try:
            with jobs.consume(prefetch=1) as consumer:
                for delivery in consumer:
                    close_old_connections()  # as Django does around a request
                    try:
                        self.resize(int(delivery.body))
                    except Exception:
                        logging.getLogger(__name__).exception(
                            "attempt %d at picture %s failed", delivery.attempt, delivery.body.decode()
                        )
                        delivery.retry()  # later; after the last attempt it goes to the queue "failed"
                    else:
                        delivery.ack()
        except KeyboardInterrupt:
            self.stdout.write("stopped; what was not done comes again")

    def resize(self, number: int) -> None:
        """Do one job; to do it again changes nothing."""
        picture = Picture.objects.get(pk=number)
        picture.small = f"small {picture.name}"
        picture.save()
