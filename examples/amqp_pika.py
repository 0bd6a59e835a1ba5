"""RabbitMQ's client pika, unchanged: confirmed publishes, a worker that acknowledges, and what becomes of a bad message.

warrenmq serve --data data            # in another terminal; any RabbitMQ will do as well
python examples/amqp_pika.py [amqp://guest:guest@localhost:5672/%2F]
"""

from __future__ import annotations

import sys

import pika


def main(url: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare("resize.failed", durable=True)
        to_failed = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "resize.failed"}
        channel.queue_declare("resize", durable=True, arguments=to_failed)

        channel.confirm_delivery()  # from here on basic_publish returns when the message is on disk
        for picture in ("cat.jpg", "dog.txt", "owl.jpg"):
            persistent = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)
            channel.basic_publish("", "resize", picture.encode(), persistent, mandatory=True)
            print(f"confirmed: {picture}")

        channel.basic_qos(prefetch_count=10)
        for method, _, body in channel.consume("resize", inactivity_timeout=1):
            if method is None:  # a worker would go on; this one ends when there is nothing to do
                break
            if body.endswith(b".jpg"):
                print(f"resized: {body.decode()}")
                channel.basic_ack(method.delivery_tag)
            else:
                channel.basic_reject(method.delivery_tag, requeue=False)
        channel.cancel()

        method, properties, body = channel.basic_get("resize.failed", auto_ack=True)
        death = properties.headers["x-death"][0]
        print(f"failed: {body.decode()}, {death['reason']} by queue {death['queue']}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "amqp://guest:guest@localhost:5672/%2F")
