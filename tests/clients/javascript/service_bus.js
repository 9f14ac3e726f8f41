// Scenarios with @azure/service-bus: `node service_bus.js SCENARIO`, settings in the environment.
"use strict";
const assert = require("node:assert/strict");
const Long = require("long");
const WebSocket = require("ws");
const { ServiceBusAdministrationClient, ServiceBusClient, delay } = require("@azure/service-bus");

const { CONNECTION_STRING, HOST, TOKEN } = process.env;
const FAST = { retryOptions: { maxRetries: 0, timeoutInMs: 10000 } };
const WAIT = { maxWaitTimeInMs: 5000 };
const credential = {
  getToken: async () => ({ token: TOKEN, expiresOnTimestamp: Date.now() + 3600e3 }),
};

let counter = 0;
const unique = (word) => `js-${word}-${process.pid}-${++counter}`;
const collect = async (pages) => {
  const found = [];
  for await (const item of pages) found.push(item);
  return found;
};

/** Runs `body(client, admin)` with both clients, and closes what was opened. */
async function withClients(body, options = {}) {
  const client = new ServiceBusClient(CONNECTION_STRING, { ...FAST, ...options });
  try {
    await body(client, new ServiceBusAdministrationClient(CONNECTION_STRING));
  } finally {
    await client.close();
  }
}

/** Runs `body(client, queue, admin)` with a new queue. */
const withQueue = (properties, body, options) =>
  withClients(async (client, admin) => {
    const queue = unique("queue");
    await admin.createQueue(queue, properties);
    try {
      await body(client, queue, admin);
    } finally {
      await admin.deleteQueue(queue);
    }
  }, options);

async function exchange(client, queue) {
  const sender = client.createSender(queue);
  await sender.sendMessages({ body: "hello", applicationProperties: { n: 1 } });
  const receiver = client.createReceiver(queue);
  const [message] = await receiver.receiveMessages(1, WAIT);
  assert.equal(message.body, "hello");
  assert.equal(message.applicationProperties.n, 1);
  assert.ok(message.messageId, "a message without an id gets one");
  await receiver.completeMessage(message);
  assert.deepEqual(await receiver.peekMessages(1), []);
}

const scenarios = {
  async administration() {
    const admin = new ServiceBusAdministrationClient(CONNECTION_STRING);
    const [queue, target, topic] = [unique("q"), unique("target"), unique("t")];
    const namespace = await admin.getNamespaceProperties();
    assert.ok(["Standard", "Premium"].includes(namespace.messagingSku));
    await admin.createQueue(target);
    const created = await admin.createQueue(queue, {
      lockDuration: "PT30S",
      maxDeliveryCount: 5,
      requiresSession: true,
      userMetadata: "<note>",
      forwardDeadLetteredMessagesTo: target,
    });
    assert.equal(created.name, queue);
    assert.equal(created.lockDuration, "PT30S");
    const changed = await admin.updateQueue({ ...created, maxDeliveryCount: 6 });
    assert.equal(changed.maxDeliveryCount, 6);
    const read = await admin.getQueue(queue);
    assert.equal(read.userMetadata, "<note>");
    assert.equal(read.requiresSession, true);
    assert.ok(read.forwardDeadLetteredMessagesTo.endsWith(target));
    assert.equal((await admin.getQueueRuntimeProperties(queue)).totalMessageCount, 0);
    assert.equal(await admin.queueExists(queue), true);
    assert.equal(await admin.queueExists(unique("none")), false);
    assert.ok((await collect(admin.listQueues())).some((found) => found.name === queue));
    await assert.rejects(admin.createQueue(queue), { code: "MessageEntityAlreadyExistsError" });

    const pages = [];
    for await (const page of admin.listQueues().byPage({ maxPageSize: 1 })) pages.push(...page);
    assert.ok([queue, target].every((name) => pages.some((found) => found.name === name)));

    const described = await admin.createTopic(topic, { defaultMessageTimeToLive: "PT1H" });
    assert.equal((await admin.updateTopic({ ...described, userMetadata: "m" })).userMetadata, "m");
    assert.ok((await collect(admin.listTopics())).some((found) => found.name === topic));
    await admin.createSubscription(topic, "sub", { forwardTo: target });
    const subscription = await admin.getSubscription(topic, "sub");
    assert.equal(subscription.topicName, topic);
    assert.equal(subscription.subscriptionName, "sub");
    const [listed] = await collect(admin.listSubscriptions(topic));
    assert.equal(listed.subscriptionName, "sub");
    assert.equal((await admin.getTopicRuntimeProperties(topic)).subscriptionCount, 1);
    await admin.createRule(topic, "sub", "sql", { sqlExpression: "a > 1" }, { sqlExpression: "SET b = 2" });
    await admin.createRule(topic, "sub", "correlation", { subject: "x", applicationProperties: { n: 3 } });
    const rules = await collect(admin.listRules(topic, "sub"));
    assert.deepEqual(rules.map((rule) => rule.name).sort(), ["$Default", "correlation", "sql"]);
    const rule = await admin.getRule(topic, "sub", "sql");
    assert.equal(rule.filter.sqlExpression, "a > 1");
    assert.equal(rule.action.sqlExpression, "SET b = 2");
    const other = await admin.updateRule(topic, "sub", { ...rule, filter: { sqlExpression: "a > 2" } });
    assert.equal(other.filter.sqlExpression, "a > 2");
    const renewed = await admin.updateSubscription({ ...subscription, maxDeliveryCount: 4 });
    assert.equal(renewed.maxDeliveryCount, 4);
    await admin.deleteRule(topic, "sub", "sql");
    await admin.deleteSubscription(topic, "sub");
    await admin.deleteTopic(topic);
    await admin.deleteQueue(queue);
    await admin.deleteQueue(target);
    assert.equal(await admin.topicExists(topic), false);
  },

  send: () => withQueue({}, exchange),

  /** A key of the entity, with Send and Listen, is enough for messages and for $management. */
  async entity_key() {
    const admin = new ServiceBusAdministrationClient(CONNECTION_STRING);
    const queue = unique("queue");
    const rule = {
      claimType: "SharedAccessKey",
      accessRights: ["Send", "Listen"],
      keyName: "app",
      primaryKey: "key-of-the-queue-aaaaaaaaaaaaaaaaaaaaaaaaaaa",
      secondaryKey: "second-key-of-the-queue-aaaaaaaaaaaaaaaaaaaa",
    };
    const created = await admin.createQueue(queue, { authorizationRules: [rule] });
    assert.equal(created.authorizationRules[0].keyName, "app");
    const text = CONNECTION_STRING.replace(/KeyName=[^;]*/, "KeyName=app").replace(
      /AccessKey=[^;]*/,
      `AccessKey=${rule.primaryKey}`,
    );
    const client = new ServiceBusClient(text, FAST);
    try {
      await exchange(client, queue);
      const denied = client.createSender(unique("other"));
      await assert.rejects(denied.sendMessages({ body: 1 }));
    } finally {
      await client.close();
      await admin.deleteQueue(queue);
    }
  },

  batches: () =>
    withQueue({}, async (client, queue) => {
      const sender = client.createSender(queue);
      const batch = await sender.createMessageBatch();
      let count = 0;
      while (count < 20 && batch.tryAddMessage({ body: { n: count }, messageId: `m${count}` })) count++;
      await sender.sendMessages(batch);
      await sender.sendMessages([{ body: { n: count++ } }, { body: { n: count++ } }]);
      const receiver = client.createReceiver(queue);
      const found = [];
      while (found.length < count) {
        const messages = await receiver.receiveMessages(count - found.length, WAIT);
        assert.ok(messages.length, "messages are missing");
        found.push(...messages);
      }
      assert.deepEqual(found.map((message) => message.body.n), [...Array(count).keys()]);
      await Promise.all(found.map((message) => receiver.completeMessage(message)));
      const small = await sender.createMessageBatch({ maxSizeInBytes: 200 });
      assert.equal(small.tryAddMessage({ body: "x".repeat(300) }), false);
    }),

  schedule: () =>
    withQueue({}, async (client, queue) => {
      const sender = client.createSender(queue);
      const later = new Date(Date.now() + 3600e3);
      const [cancelled, kept] = await sender.scheduleMessages([{ body: 1 }, { body: 2 }], later);
      await sender.cancelScheduledMessages(cancelled);
      const receiver = client.createReceiver(queue);
      const [peeked, ...others] = await receiver.peekMessages(10);
      assert.deepEqual(others, []);
      assert.ok(peeked.sequenceNumber.equals(kept));
      assert.equal(peeked.state, "scheduled");
      assert.equal(peeked.scheduledEnqueueTimeUtc.getTime(), later.getTime());
      await sender.cancelScheduledMessages(kept);
      await sender.scheduleMessages({ body: 3 }, new Date(Date.now() + 500));
      const [message] = await receiver.receiveMessages(1, WAIT);
      assert.equal(message.body, 3);
      await receiver.completeMessage(message);
    }),

  peek_lock: () =>
    withQueue({ lockDuration: "PT20S" }, async (client, queue) => {
      const sender = client.createSender(queue);
      await sender.sendMessages([{ body: "a" }, { body: "b" }, { body: "c" }]);
      const receiver = client.createReceiver(queue);
      const [first] = await receiver.receiveMessages(1, WAIT);
      const before = first.lockedUntilUtc;
      await delay(20);
      assert.ok((await receiver.renewMessageLock(first)) > before);
      await receiver.abandonMessage(first, { tried: true });
      const [again] = await receiver.receiveMessages(1, WAIT);
      assert.equal(again.deliveryCount, 1);
      assert.equal(again.applicationProperties.tried, true);
      const number = again.sequenceNumber;
      await receiver.deferMessage(again);
      const [shown] = await receiver.peekMessages(1, { fromSequenceNumber: Long.fromNumber(1) });
      assert.equal(shown.state, "deferred");
      assert.equal(shown.body, "a");
      const [deferred] = await receiver.receiveDeferredMessages(number);
      assert.equal(deferred.body, "a");
      await receiver.completeMessage(deferred);
      const bare = await receiver.peekMessages(5, { fromSequenceNumber: Long.fromNumber(1), omitMessageBody: true });
      assert.deepEqual(bare.map((message) => [message.body, message.state]), [[undefined, "active"], [undefined, "active"]]);
      const rest = await receiver.receiveMessages(2, WAIT);
      await Promise.all(rest.map((message) => receiver.completeMessage(message)));
      await assert.rejects(receiver.completeMessage(rest[0]));
    }),

  receive_and_delete: () =>
    withQueue({}, async (client, queue, admin) => {
      await client.createSender(queue).sendMessages([{ body: 1 }, { body: 2 }]);
      const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
      const [one] = await receiver.receiveMessages(1, WAIT);
      const [two] = await receiver.receiveMessages(1, WAIT);
      assert.deepEqual([one.body, two.body], [1, 2]);
      assert.equal((await admin.getQueueRuntimeProperties(queue)).totalMessageCount, 0);
    }),

  sessions: () =>
    withQueue({ requiresSession: true }, async (client, queue) => {
      const sender = client.createSender(queue);
      await sender.sendMessages([{ body: 1, sessionId: "a" }, { body: 2, sessionId: "b" }, { body: 3, sessionId: "a" }]);
      const first = await client.acceptNextSession(queue);
      assert.equal(first.sessionId, "a");
      await assert.rejects(client.acceptSession(queue, "a"), { code: "SessionCannotBeLocked" });
      await first.setSessionState({ step: 1 });
      assert.deepEqual(await first.getSessionState(), { step: 1 });
      assert.ok((await first.renewSessionLock()) instanceof Date);
      const messages = await first.receiveMessages(2, WAIT);
      assert.deepEqual(messages.map((message) => message.body), [1, 3]);
      for (const message of messages) await first.completeMessage(message);
      await first.close();
      const second = await client.acceptSession(queue, "b");
      assert.equal((await second.peekMessages(1))[0].body, 2);
      const [message] = await second.receiveMessages(1, WAIT);
      await second.deferMessage(message);
      const [deferred] = await second.receiveDeferredMessages(message.sequenceNumber);
      await second.deadLetterMessage(deferred);
      await second.close();
      const again = await client.acceptSession(queue, "a");
      assert.deepEqual(await again.getSessionState(), { step: 1 });
      await again.setSessionState(null);
      assert.equal(await again.getSessionState(), null);
      await again.close();
    }),

  next_session_timeout: () =>
    withQueue({ requiresSession: true }, async (client, queue) => {
      const started = Date.now();
      await assert.rejects(client.acceptNextSession(queue), { code: "ServiceTimeout" });
      assert.ok(Date.now() - started < 4000, "the client's time-out is honoured");
    }, { retryOptions: { maxRetries: 0, timeoutInMs: 2000 } }),

  rules: () =>
    withClients(async (client, admin) => {
      const topic = unique("topic");
      await admin.createTopic(topic);
      await admin.createSubscription(topic, "sub");
      const manager = client.createRuleManager(topic, "sub");
      await manager.deleteRule("$Default");
      await manager.createRule("sql", { sqlExpression: "n > 1" }, { sqlExpression: "SET seen = 'yes'" });
      await manager.createRule("correlation", { subject: "s", applicationProperties: { n: 1 } });
      const rules = await collect(manager.listRules());
      assert.deepEqual(rules.map((rule) => rule.name).sort(), ["correlation", "sql"]);
      const sql = rules.find((rule) => rule.name === "sql");
      assert.equal(sql.filter.sqlExpression, "n > 1");
      assert.equal(sql.action.sqlExpression, "SET seen = 'yes'");
      const correlation = rules.find((rule) => rule.name === "correlation");
      assert.equal(correlation.filter.subject, "s");
      assert.deepEqual(correlation.filter.applicationProperties, { n: 1 });
      await assert.rejects(manager.createRule("sql", { sqlExpression: "1=1" }), { code: "MessagingEntityAlreadyExists" });
      await assert.rejects(manager.deleteRule("none"), { code: "MessagingEntityNotFound" });
      await client.createSender(topic).sendMessages([
        { body: 1, applicationProperties: { n: 0 } },
        { body: 2, applicationProperties: { n: 2 } },
        { body: 3, subject: "s", applicationProperties: { n: 1 } },
      ]);
      const receiver = client.createReceiver(topic, "sub", { receiveMode: "receiveAndDelete" });
      const found = await receiver.receiveMessages(2, WAIT);
      assert.deepEqual(found.map((message) => message.body), [2, 3]);
      assert.equal(found[0].applicationProperties.seen, "yes");
      await admin.deleteTopic(topic);
    }),

  dead_letters: () =>
    withQueue({}, async (client, queue) => {
      await client.createSender(queue).sendMessages({ body: "bad" });
      const receiver = client.createReceiver(queue);
      const [message] = await receiver.receiveMessages(1, WAIT);
      await receiver.deadLetterMessage(message, { deadLetterReason: "why", deadLetterErrorDescription: "because", extra: 1 });
      const letters = client.createReceiver(queue, { subQueueType: "deadLetter" });
      const [letter] = await letters.receiveMessages(1, WAIT);
      assert.equal(letter.deadLetterReason, "why");
      assert.equal(letter.deadLetterErrorDescription, "because");
      assert.equal(letter.applicationProperties.extra, 1);
      await letters.completeMessage(letter);
    }),

  subscribe: () =>
    withQueue({ lockDuration: "PT10S" }, async (client, queue) => {
      const receiver = client.createReceiver(queue);
      const bodies = [];
      const all = new Promise((resolve, reject) => {
        receiver.subscribe({
          processMessage: async (message) => {
            bodies.push(message.body);
            if (bodies.length === 10) resolve();
          },
          processError: async (args) => reject(args.error),
        });
      });
      const sender = client.createSender(queue);
      for (let n = 0; n < 10; n++) await sender.sendMessages({ body: n });
      await all;
      assert.deepEqual(bodies, [...Array(10).keys()]);
      await receiver.close();
      assert.deepEqual(await client.createReceiver(queue).peekMessages(1), []);
    }),

  iterator: () =>
    withQueue({}, async (client, queue) => {
      await client.createSender(queue).sendMessages([{ body: 0 }, { body: 1 }, { body: 2 }]);
      const receiver = client.createReceiver(queue);
      const bodies = [];
      for await (const message of receiver.getMessageIterator({ maxWaitTimeInMs: 5000 })) {
        bodies.push(message.body);
        await receiver.completeMessage(message);
        if (bodies.length === 3) break;
      }
      assert.deepEqual(bodies, [0, 1, 2]);
    }),

  lock_renewal: () =>
    withQueue({ lockDuration: "PT3S" }, async (client, queue) => {
      await client.createSender(queue).sendMessages({ body: "slow" });
      const receiver = client.createReceiver(queue);
      await new Promise((resolve, reject) => {
        receiver.subscribe(
          {
            processMessage: async (message) => {
              await delay(5000);
              await receiver.completeMessage(message);
              resolve();
            },
            processError: async (args) => reject(args.error),
          },
          { autoCompleteMessages: false },
        );
      });
      await receiver.close();
      assert.deepEqual(await client.createReceiver(queue).peekMessages(1), []);
    }),

  many_senders: () =>
    withQueue({}, async (client, queue) => {
      const senders = Array.from({ length: 50 }, () => client.createSender(queue));
      await Promise.all(senders.map((sender, n) => sender.sendMessages({ body: n })));
      const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
      const found = new Set();
      while (found.size < 50) {
        const messages = await receiver.receiveMessages(50 - found.size, WAIT);
        assert.ok(messages.length, "messages are missing");
        messages.forEach((message) => found.add(message.body));
      }
    }),

  async websocket() {
    const plain = CONNECTION_STRING.replace(/;?UseDevelopmentEmulator=true/, "");
    const admin = new ServiceBusAdministrationClient(CONNECTION_STRING);
    const queue = unique("queue");
    await admin.createQueue(queue);
    const client = new ServiceBusClient(plain, { ...FAST, webSocketOptions: { webSocket: WebSocket } });
    try {
      await exchange(client, queue);
    } finally {
      await client.close();
      await admin.deleteQueue(queue);
    }
  },

  async token() {
    const admin = new ServiceBusAdministrationClient(HOST, credential);
    const queue = unique("queue");
    await admin.createQueue(queue);
    assert.ok((await collect(admin.listQueues())).some((found) => found.name === queue));
    const client = new ServiceBusClient(HOST, credential, FAST);
    try {
      await exchange(client, queue);
    } finally {
      await client.close();
      await admin.deleteQueue(queue);
    }
  },
};

scenarios[process.argv[2]]().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
