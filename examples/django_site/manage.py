"""A Django site that answers at once and works later: a job is on disk before the answer is sent, and none is
made for what was rolled back.

    python manage.py migrate --run-syncdb                             # in examples/django_site
    gunicorn -w 4 wsgi:application                                    # with --preload or without; runserver will do as well
    python manage.py work                                             # in other terminals, as many as you like
    curl http://127.0.0.1:8000/pictures -d name=cat.jpg -d name=dog.jpg
    curl http://127.0.0.1:8000/pictures

SITE_DATA names the folder of the database and of the jobs; ./data unless it is set.
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_settings")
    execute_from_command_line(sys.argv)
