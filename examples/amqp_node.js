// amqplib, node's client of RabbitMQ, unchanged: a request, a worker, and the answer sent straight back.
//
//     warrenmq serve --data data            # in another terminal; any RabbitMQ will do as well
//     npm install amqplib
//     node examples/amqp_node.js [amqp://guest:guest@localhost:5672]

'use strict';

const amqp = require('amqplib');

async function worker(connection) {
  const channel = await connection.createChannel();
  await channel.assertQueue('thumbnails', { durable: true });
  await channel.prefetch(1);
  await channel.consume('thumbnails', (message) => {
    const answer = `thumbnail of ${message.content}`;
    channel.sendToQueue(message.properties.replyTo, Buffer.from(answer), {
      correlationId: message.properties.correlationId,
    });
    channel.ack(message);
  });
}

async function ask(connection, pictures) {
  const channel = await connection.createConfirmChannel();
  const answers = new Promise((resolve) => {
    const seen = [];
    channel.consume('amq.rabbitmq.reply-to', (message) => {
      seen.push(`${message.properties.correlationId}: ${message.content}`);
      if (seen.length === pictures.length) resolve(seen);
    }, { noAck: true });
  });
  pictures.forEach((picture, number) => {
    channel.sendToQueue('thumbnails', Buffer.from(picture), {
      persistent: true,
      replyTo: 'amq.rabbitmq.reply-to', // no queue for the answers: they come to this channel
      correlationId: String(number),
    });
  });
  await channel.waitForConfirms();
  console.log(`confirmed: ${pictures.length}`);
  return answers;
}

async function main(url) {
  const connection = await amqp.connect(url);
  await worker(connection);
  (await ask(connection, ['cat.jpg', 'owl.jpg'])).forEach((line) => console.log(line));
  await connection.close();
}

main(process.argv[2] || 'amqp://guest:guest@localhost:5672').catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
