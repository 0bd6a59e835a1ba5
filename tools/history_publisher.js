// A publisher of tools/histories.py: a body a line in hex, and `ok` when the server has confirmed it.
const amqp = require('amqplib'), readline = require('readline');
const [port, queue] = process.argv.slice(2);

async function main() {
  const connection = await amqp.connect(`amqp://guest:guest@127.0.0.1:${port}?heartbeat=0`);
  connection.on('error', () => process.exit(1));
  connection.on('close', () => process.exit(1));
  const channel = await connection.createConfirmChannel();
  channel.on('error', () => process.exit(1));
  console.log('ready');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    channel.sendToQueue(queue, Buffer.from(line, 'hex'), { persistent: true });
    await channel.waitForConfirms();
    console.log('ok');
  }
  process.exit(0);
}

main().catch(() => process.exit(1));
