"""The views of the site."""

from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from pictures.jobs import queue, resize_later
from pictures.models import Picture


@csrf_exempt  # the example has no pages, so no forms with a token
def pictures(request: HttpRequest) -> HttpResponse:
    """POST: keep pictures, all or none, and have them made small; the jobs are on disk when 201 is sent.
    GET: what is done.
    """
    if request.method == "POST":
        try:
            with transaction.atomic():
                for name in request.POST.getlist("name"):
                    resize_later(Picture.objects.create(name=name).pk)
        except IntegrityError:
            return HttpResponse(f"nothing was kept: {name} is there already\n", status=409)
        return HttpResponse("kept\n", status=201)
    done = Picture.objects.exclude(small="").order_by("pk")
    return JsonResponse({"waiting": len(queue()), "done": [each.small for each in done]})


urlpatterns = [path("pictures", pictures)]
