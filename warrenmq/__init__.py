"""warrenmq: RabbitMQ's classic-queue storage as supervised Pykka actors."""
