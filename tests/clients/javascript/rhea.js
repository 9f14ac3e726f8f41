// Scenarios with rhea, an AMQP client that knows nothing of Service Bus but SASL PLAIN.
"use strict";
const assert = require("node:assert/strict");
const rhea = require("rhea");

const { HOST, KEY_NAME, KEY, QUEUE } = process.env;
const [host, port] = HOST.split(":");

const connect = (options) =>
  rhea.create_container().connect({ host, port, reconnect: false, username: KEY_NAME, password: KEY, ...options });

const once = (emitter, event, ...failures) =>
  new Promise((resolve, reject) => {
    emitter.once(event, resolve);
    for (const failure of failures) {
      emitter.once(failure, (context) => reject(context.error || new Error(failure)));
    }
  });

/** Returns a function that waits for the next message of a receiver. */
function incoming(receiver) {
  const arrived = [];
  const waiting = [];
  receiver.on("message", (context) => (waiting.length ? waiting.shift()(context) : arrived.push(context)));
  return () => new Promise((resolve) => (arrived.length ? resolve(arrived.shift()) : waiting.push(resolve)));
}

async function exchange(options) {
  const connection = connect(options);
  const sender = connection.open_sender(QUEUE);
  await once(sender, "sendable", "sender_error", "connection_error", "disconnected");
  sender.send({ body: "one", subject: "s", application_properties: { n: 1 } });
  sender.send({ body: "two" });
  await once(sender, "accepted", "rejected");
  const receiver = connection.open_receiver({ source: QUEUE, credit_window: 0, autoaccept: false });
  const next = incoming(receiver);
  receiver.add_credit(2);
  const first = await next();
  assert.equal(first.message.body, "one");
  assert.equal(first.message.subject, "s");
  assert.equal(first.message.application_properties.n, 1);
  assert.equal(first.message.message_annotations["x-opt-sequence-number"] > 0, true);
  first.delivery.accept();
  // rhea 3.0 writes one disposition for two neighbours of one turn, whatever their outcomes.
  await new Promise(setImmediate);
  (await next()).delivery.release();
  receiver.add_credit(1);
  const again = await next();
  assert.equal(again.message.body, "two");
  assert.equal(again.message.delivery_count, 0, "a released message does not count as delivered");
  again.delivery.accept();
  connection.close();
  await once(connection, "connection_close");
}

const scenarios = {
  plain: () => exchange({}),
  plain_over_tls: () => exchange({ transport: "tls" }),

  async wrong_key() {
    const connection = connect({ password: "wrong" });
    await assert.rejects(once(connection, "connection_open", "connection_error", "disconnected"));
  },

  /** Qpid clients and rhea open as many sessions as they like: channel-max is 4999. */
  async many_sessions() {
    const connection = connect({});
    await once(connection, "connection_open", "connection_error", "disconnected");
    assert.equal(connection.channel_max, 4999);
    const sessions = Array.from({ length: 300 }, () => connection.create_session());
    await Promise.all(
      sessions.map((session) => {
        session.begin();
        return once(session, "session_open", "session_error");
      }),
    );
    const senders = sessions.map((session) => session.open_sender(QUEUE));
    await Promise.all(senders.map((sender) => once(sender, "sendable", "sender_error")));
    connection.close();
    await once(connection, "connection_close");
  },
};

scenarios[process.argv[2]]().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
