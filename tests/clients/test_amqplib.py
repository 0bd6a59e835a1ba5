"""amqplib, node's client: the example, and what its users lean on.

Skipped where node or amqplib is missing; `python3 tests/run.py` installs amqplib where npm is there.
"""

import os
import shutil
import subprocess

import pytest

from tests.support.source_tree import ROOT

MODULES = os.path.join(ROOT, ".node-test", "node_modules")


@pytest.fixture
def node(server):
    if shutil.which("node") is None:
        pytest.skip("node is not there")
    if not os.path.isdir(os.path.join(MODULES, "amqplib")):
        pytest.skip("amqplib is not there: npm install --prefix .node-test amqplib")

    def run(*arguments):
        environment = os.environ | {
            "NODE_PATH": MODULES,
            "AMQP_URL": server.url.replace("://", "://guest:guest@"),
        }
        done = subprocess.run(
            ["node", *arguments], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


@pytest.fixture
def script(node):
    """Run the body of an async function that has a connection, and `assert`; what it returns is a line each."""

    def run(body):
        return node(
            "-e",
            f"""
            const amqp = require('amqplib'), assert = require('assert');
            async function main(connection) {{ {body} }}
            amqp.connect(process.env.AMQP_URL).then(async (connection) => {{
              for (const line of await main(connection)) console.log(line);
              await connection.close();
            }}).catch((error) => {{ console.error(error); process.exit(1); }});
        """,
        )

    return run


def test_the_example_says_what_it_promises(node, server):
    assert node(
        os.path.join(ROOT, "examples", "amqp_node.js"), server.url.replace("://", "://guest:guest@")
    ) == ["confirmed: 2", "0: thumbnail of cat.jpg", "1: thumbnail of owl.jpg"]


def test_all_kinds_of_headers_come_back(script):
    assert script("""
        const channel = await connection.createChannel();
        const { queue } = await channel.assertQueue('', { exclusive: true });
        const headers = { text: 'ü', int: 1, negative: -70000, big: 2 ** 40, half: 0.5, yes: true, nothing: null,
                          list: [1, 'two', [3]], table: { deep: { deeper: 1 } }, when: { '!': 'timestamp', value: 1600000000 } };
        channel.sendToQueue(queue, Buffer.from('body'), { headers, priority: 3, expiration: 60000, userId: 'guest' });
        const message = await channel.get(queue, { noAck: true });
        assert.deepStrictEqual(message.properties.headers, headers);
        return [message.content.toString(), message.properties.priority, message.properties.expiration, message.fields.redelivered];
    """) == ["body", "3", "60000", "false"]


def test_checking_a_queue_that_is_not_there_closes_that_channel_alone(script):
    assert script("""
        const doomed = await connection.createChannel();
        const why = [];
        doomed.on('error', (error) => why.push(error.code));
        await doomed.checkQueue('node-no-such-queue').catch((error) => why.push(error.message));
        const { queue } = await (await connection.createChannel()).assertQueue('', { exclusive: true });
        return [...why.map(String).sort().slice(0, 1), queue.startsWith('amq.gen-')];
    """) == ["404", "true"]


def test_a_confirm_channel_tells_acks_from_nacks(script):
    assert script("""
        const channel = await connection.createConfirmChannel();
        const { queue } = await channel.assertQueue('', { exclusive: true, maxLength: 2, arguments: { 'x-overflow': 'reject-publish' } });
        const send = (text) => new Promise((resolve) => channel.sendToQueue(queue, Buffer.from(text), {}, (error) => resolve(error === null)));
        return Promise.all(['a', 'b', 'c'].map(send));
    """) == ["true", "true", "false"]


def test_messages_that_were_sent_before_a_drain_all_arrive(script):
    assert script("""
        const channel = await connection.createConfirmChannel();
        const { queue } = await channel.assertQueue('', { exclusive: true });
        for (let number = 0; number < 500; number++) channel.sendToQueue(queue, Buffer.alloc(50000, number % 256));
        await channel.waitForConfirms();
        const { messageCount } = await channel.checkQueue(queue);
        return [messageCount];
    """) == ["500"]
