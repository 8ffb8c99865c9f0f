// Topics, subscriptions and their rules, which this client can also change; what else queues do for each other.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  SIDE_BY_SIDE,
  bodies,
  client,
  connectionString,
  makeClient,
  peekAll,
  receive,
  receiveOne,
  refused,
  sleep,
  takeQueue,
} from "./bus.mjs";

const DEAD = { subQueueType: "deadLetter" };
const ONCE = { retryOptions: { maxRetries: 0 } };
// What is true of a message without any of the user properties that the rules ask for.
const NOTHING = ["is-null", "not-exists"];
const SEVEN = [
  ...["whole", "whole-as-double", "between", "fraction-below", "in-numbers", "arithmetic"],
  ...["precedence", "brackets-first", "division", "modulo", "sign", "unknown-or-true", "c-whole"],
];

/** A topic with a sender, and the rules of its first subscription. */
function opened(kind = "topic") {
  const topic = takeQueue(kind);
  return {
    topic,
    sender: client.createSender(topic),
    rules: client.createRuleManager(topic, "a"),
    receiver: client.createReceiver(topic, "a"),
  };
}

/** Receive and complete so many messages, and see that there are no more. */
async function taken(topic, subscription, count) {
  const receiver = client.createReceiver(topic, subscription);
  const messages = count ? await receive(receiver, count) : [];
  for (const message of messages) {
    await receiver.completeMessage(message);
  }
  assert.deepEqual(await peekAll(receiver), []);
  return bodies(messages);
}

async function listed(rules) {
  const found = [];
  for await (const rule of rules.listRules()) {
    found.push(rule);
  }
  return found;
}

function coloured(colour) {
  return { body: colour, applicationProperties: { colour } };
}

/** Which rules took each message: they say so in copies of their own. */
async function verdicts(topic, cases) {
  const wanted = cases.reduce((sum, [, expected]) => sum + expected.length, 0);
  const receiver = client.createReceiver(topic, "verdicts");
  let seen = [];
  for (let turn = 0; turn < 100 && seen.length < wanted; turn += 1) {
    seen = await peekAll(receiver);
    await sleep(50);
  }
  const found = cases.map(() => []);
  for (const message of seen) {
    found[message.body].push(message.applicationProperties.verdict);
  }
  return found.map((names) => names.sort());
}

describe("publishing", SIDE_BY_SIDE, () => {
  for (const kind of ["topic", "partitioned-topic"]) {
    it(`gives every subscription a copy (${kind})`, async () => {
      const { topic, sender } = opened(kind);
      await sender.sendMessages({ body: 1 });
      await sender.sendMessages([{ body: 2 }, { body: 3 }]);
      for (const name of ["a", "b", "c"]) {
        assert.deepEqual((await taken(topic, name, 3)).sort(), [1, 2, 3]);
      }
    });
  }

  it("takes what the rules of a subscription want", async () => {
    const { topic, sender } = opened("choosy-topic");
    await sender.sendMessages(["red", "blue", "green"].map(coloured));
    assert.deepEqual(await taken(topic, "all", 3), ["red", "blue", "green"]);
    assert.deepEqual(await taken(topic, "none", 0), []);
    assert.deepEqual(await taken(topic, "red", 1), ["red"]);
    assert.deepEqual(await taken(topic, "blue", 1), ["blue"]);
    assert.deepEqual(await taken(topic, "either", 2), ["red", "blue"]);
  });

  it("accepts what nobody takes", async () => {
    const { topic, sender } = opened("deserted-topic");
    await sender.sendMessages([{ body: "x" }, { body: "y" }]);
    await client.createSender(`${topic}/refused`).sendMessages({ body: "x" });
    assert.deepEqual(await taken(`${topic}/refused`, "none", 0), []);
  });

  it("R-F6: refuses what nobody would take, where a topic is there to try rules", async () => {
    const topic = takeQueue("trying-topic");
    const sender = makeClient(connectionString, ONCE).createSender(topic);
    await sender.sendMessages(coloured("red"));
    await assert.rejects(sender.sendMessages(coloured("blue")), /subscription/);
    await assert.rejects(sender.sendMessages(["red", "blue"].map(coloured)), /subscription/);
    assert.deepEqual(await taken(topic, "red", 1), ["red"]);
  });

  it("sends nothing to subscriptions and receives nothing from topics", async () => {
    const { topic } = opened();
    const once = makeClient(connectionString, ONCE);
    const sender = once.createSender(`${topic}/Subscriptions/a`);
    await assert.rejects(sender.sendMessages({ body: 1 }), /cannot be sent to a subscription/);
    const receiver = once.createReceiver(topic);
    await assert.rejects(receiver.receiveMessages(1), /cannot be received from a topic/);
    const nobody = once.createReceiver(topic, "nobody");
    await refused(nobody.receiveMessages(1), "MessagingEntityNotFound");
  });

  it("schedules and cancels on the topic", async () => {
    const { topic, sender, receiver } = opened();
    const due = new Date(Date.now() + 6_000);
    const [first] = await sender.scheduleMessages([{ body: 1 }, { body: 2 }], due);
    await sender.cancelScheduledMessages(first);
    assert.deepEqual(await peekAll(receiver), []);
    const message = await receiveOne(receiver);
    assert.equal(message.body, 2);
    assert.ok(Date.now() >= due.getTime() - 50);
    await receiver.completeMessage(message);
    assert.deepEqual(await taken(topic, "b", 1), [2]);
  });

  it("settles on a subscription, and each has its own dead letters", async () => {
    const { topic, sender, receiver } = opened();
    await sender.sendMessages([0, 1, 2, 3].map((body) => ({ body })));
    const [first, second, third, fourth] = await receive(receiver, 4);
    await receiver.completeMessage(first);
    await receiver.deferMessage(second);
    await receiver.deadLetterMessage(third, { deadLetterReason: "Why" });
    await receiver.abandonMessage(fourth);
    const again = await receiveOne(receiver);
    assert.deepEqual([again.body, again.deliveryCount], [3, 1]);
    await receiver.renewMessageLock(again);
    await receiver.completeMessage(again);
    const [fetched] = await receiver.receiveDeferredMessages(second.sequenceNumber);
    await receiver.completeMessage(fetched);
    assert.deepEqual(await peekAll(receiver), []);
    const dead = await receiveOne(client.createReceiver(topic, "a", DEAD));
    assert.deepEqual([dead.body, dead.deadLetterReason], [2, "Why"]);
    assert.deepEqual(await peekAll(client.createReceiver(topic, "b", DEAD)), []);
  });

  it("has sessions on a subscription; a copy without one is a dead letter", async () => {
    const { topic, sender } = opened("session-topic");
    for (const body of ["a1", "b1", "a2"]) {
      await sender.sendMessages({ body, sessionId: body[0] });
    }
    await sender.sendMessages({ body: "lost" });
    const receiver = await client.acceptSession(topic, "sessions", "a");
    assert.deepEqual(bodies(await receive(receiver, 2)), ["a1", "a2"]);
    const next = await client.acceptNextSession(topic, "sessions");
    assert.equal(next.sessionId, "b");
    const dead = await receiveOne(client.createReceiver(topic, "sessions", DEAD));
    assert.deepEqual([dead.body, dead.deadLetterReason], ["lost", "Session id is null."]);
    const found = await taken(topic, "ordinary", 4);
    assert.deepEqual(found.sort(), ["a1", "a2", "b1", "lost"]);
  });
});

describe("filters and actions", SIDE_BY_SIDE, () => {
  it("compares the numbers of this client, which are unsigned where they can be", async () => {
    const topic = `${takeQueue("filters")}/user`;
    const now = new Date();
    const cases = [
      [{}, NOTHING],
      [{ n: 7 }, [...NOTHING, ...SEVEN]],
      [{ n: -7 }, [...NOTHING, "unequal"]],
      [{ n: "7" }, [...NOTHING, "unequal", "not-a-text"]],
      [{ n: true }, [...NOTHING, "unequal"]],
      [{ big: 5_000_000_000 }, [...NOTHING, "long"]],
      [{ ratio: 0.5 }, [...NOTHING, "double", "double-below", "c-double"]],
      [{ ratio: 0 }, [...NOTHING, "double-below"]],
      [{ flag: true }, [...NOTHING, "flag", "flag-alone", "c-flag"]],
      [{ flag: false }, [...NOTHING, "not-flag"]],
      [{ left: now, right: new Date(now) }, [...NOTHING, "same"]],
      [{ left: now, right: new Date(now.getTime() + 1) }, [...NOTHING, "different", "later"]],
      [{ left: 3, right: -3 }, [...NOTHING, "different"]],
      [{ "the colour": "red" }, [...NOTHING, "brackets", "quotes", "function"]],
    ];
    const messages = cases.map(([properties], body) => ({
      body,
      applicationProperties: properties,
    }));
    await client.createSender(topic).sendMessages(messages);
    const expected = cases.map(([, names]) => [...names].sort());
    assert.deepEqual(await verdicts(topic, cases), expected);
  });

  it("makes one copy for all rules without action, and one for each with one", async () => {
    const { topic, sender } = opened("changing-topic");
    await sender.sendMessages({
      body: "x",
      subject: "before",
      applicationProperties: { n: 1, colour: "red" },
    });
    const messages = await receive(client.createReceiver(topic, "changed"), 3);
    const all = messages.map((message) => message.applicationProperties);
    const changed = messages.find((message) => message.applicationProperties.region);
    assert.equal(all.filter((properties) => Object.keys(properties).length === 2).length, 1);
    assert.equal(changed.subject, "changed");
    assert.deepEqual(
      { ...changed.applicationProperties },
      { n: 2, RuleName: "three", region: "north", "joined up": "red/north" },
    );
    const [untouched] = await receive(client.createReceiver(topic, "untouched"), 1);
    assert.equal(untouched.subject, "before");
  });

  it("makes a dead letter of what a rule cannot be tried on", async () => {
    const { topic, sender } = opened("failing-topic");
    await sender.sendMessages({ body: "bad", applicationProperties: { n: 2, d: 0 } });
    const dead = await receiveOne(client.createReceiver(topic, "kept", DEAD));
    assert.deepEqual([dead.body, dead.deadLetterReason], ["bad", "FilterException"]);
    assert.deepEqual(await peekAll(client.createReceiver(topic, "dropped", DEAD)), []);
    assert.deepEqual(await taken(topic, "bystander", 1), ["bad"]);
  });
});

describe("rules over the wire", SIDE_BY_SIDE, () => {
  it("begins with one rule that takes everything", async () => {
    const { rules } = opened();
    const [rule, ...others] = await listed(rules);
    assert.deepEqual(others, []);
    assert.equal(rule.name, "$Default");
    // This client knows no true filter: it shows the text that means the same.
    assert.deepEqual(rule.filter, { sqlExpression: "1=1" });
  });

  it("gives back what was put in", async () => {
    const { rules } = opened();
    const correlation = {
      correlationId: "c",
      messageId: "m",
      to: "t",
      replyTo: "r",
      subject: "s",
      sessionId: "i",
      replyToSessionId: "ri",
      contentType: "ct",
      applicationProperties: { text: "x", flag: true, n: 7, ratio: 0.5 },
    };
    await rules.createRule("sql", { sqlExpression: "n > 1" }, { sqlExpression: "SET n = 2" });
    await rules.createRule("all-fields", correlation);
    await rules.deleteRule("$Default");
    const found = Object.fromEntries((await listed(rules)).map((rule) => [rule.name, rule]));
    assert.deepEqual(Object.keys(found).sort(), ["all-fields", "sql"]);
    assert.equal(found.sql.filter.sqlExpression, "n > 1");
    assert.equal(found.sql.action.sqlExpression, "SET n = 2");
    const { applicationProperties, ...fields } = found["all-fields"].filter;
    const { applicationProperties: wanted, ...wantedFields } = correlation;
    assert.deepEqual({ ...applicationProperties }, wanted);
    assert.deepEqual({ ...fields }, wantedFields);
  });

  it("decides by the rules that there are when a message comes", async () => {
    const { topic, sender, rules } = opened();
    await sender.sendMessages(coloured("red"));
    await rules.deleteRule("$Default");
    await sender.sendMessages(coloured("green"));
    await rules.createRule("red", { applicationProperties: { colour: "red" } });
    await rules.createRule("blue", { sqlExpression: "colour = 'blue'" });
    await sender.sendMessages(["red", "blue", "green"].map(coloured));
    await rules.deleteRule("red");
    await sender.sendMessages(["red", "blue"].map(coloured));
    assert.deepEqual(await taken(topic, "a", 4), ["red", "red", "blue", "blue"]);
    assert.equal((await taken(topic, "b", 7)).length, 7);
  });

  it("filters by correlation on every property and by SQL with an action", async () => {
    const { sender, rules, receiver } = opened();
    await rules.deleteRule("$Default");
    const fields = {
      ...{ correlationId: "c", messageId: "m", to: "t", replyTo: "r", subject: "s" },
      ...{ sessionId: "i", replyToSessionId: "ri", contentType: "ct" },
    };
    for (const [name, value] of Object.entries(fields)) {
      await rules.createRule(name, { [name]: value }, { sqlExpression: `SET rule = '${name}'` });
    }
    await rules.createRule("all", fields, { sqlExpression: "SET rule = 'all'" });
    for (const [name, value] of Object.entries(fields)) {
      await sender.sendMessages({ body: name, [name]: value });
      const message = await receiveOne(receiver);
      assert.equal(message.applicationProperties.rule, name);
      await receiver.completeMessage(message);
    }
    await sender.sendMessages({ body: "all", ...fields });
    const names = (await receive(receiver, 9)).map((each) => each.applicationProperties.rule);
    assert.deepEqual(names.sort(), ["all", ...Object.keys(fields)].sort());
  });

  it("keeps more than a hundred rules, in pages", async () => {
    const { rules } = opened("partitioned-topic");
    const names = Array.from({ length: 130 }, (_, index) => `rule-${index}`);
    await Promise.all(
      names.map((name, index) => rules.createRule(name, { applicationProperties: { n: index } })),
    );
    const found = (await listed(rules)).map((rule) => rule.name);
    assert.deepEqual(found, ["$Default", ...names.sort()]);
    let pages = 0;
    for await (const page of rules.listRules().byPage({ maxPageSize: 50 })) {
      assert.ok(page.length <= 50);
      pages += 1;
    }
    assert.equal(pages, 3);
    await Promise.all(names.map((name) => rules.deleteRule(name)));
    assert.deepEqual((await listed(rules)).map((rule) => rule.name), ["$Default"]);
  });

  it("refuses a name that is taken, what cannot be read and what is not there", async () => {
    const { topic } = opened();
    const rules = makeClient(connectionString, ONCE).createRuleManager(topic, "a");
    await rules.createRule("mine", { sqlExpression: "n = 1" });
    const again = rules.createRule("MINE", { sqlExpression: "n = 2" });
    const error = await refused(again, "MessagingEntityAlreadyExists");
    assert.match(error.message, /The messaging entity 'sbemulatorns:Topic:[^|']+\|a\|MINE' already exists\./);
    await assert.rejects(rules.createRule("wrong", { sqlExpression: "n = = 1" }), /parse/i);
    const action = { sqlExpression: "SET n" };
    await assert.rejects(rules.createRule("wrong", { sqlExpression: "1=1" }, action), /parse/i);
    const long = { sqlExpression: `n = '${"x".repeat(1_100)}'` };
    await assert.rejects(rules.createRule("long", long), /1,024/);
    const missing = await refused(rules.deleteRule("nobody"), "MessagingEntityNotFound");
    assert.match(missing.message, /'sbemulatorns:Topic:[^|']+\|a\|nobody' could not be found\./);
    assert.deepEqual((await listed(rules)).map((rule) => rule.name), ["$Default", "mine"]);
  });

  it("changes rules while messages are published, and loses none", async () => {
    const { topic, sender, rules } = opened();
    let isDone = false;
    const changing = (async () => {
      for (let turn = 0; !isDone; turn += 1) {
        await rules.createRule(`rule-${turn}`, { sqlExpression: `n = ${turn}` });
        await rules.deleteRule(`rule-${turn}`);
      }
    })();
    const all = Array.from({ length: 300 }, (_, body) => ({ body, applicationProperties: { n: body } }));
    for (let start = 0; start < all.length; start += 10) {
      await Promise.all(all.slice(start, start + 10).map((each) => sender.sendMessages(each)));
    }
    isDone = true;
    await changing;
    for (const name of ["a", "b"]) {
      const found = (await taken(topic, name, 300)).sort((left, right) => left - right);
      assert.deepEqual(found, all.map((each) => each.body));
    }
  });
});

describe("entities that know each other", SIDE_BY_SIDE, () => {
  it("R-S9: drops what has an id that was seen before", async () => {
    const queue = takeQueue("dedup");
    const sender = client.createSender(queue);
    await sender.sendMessages({ body: 1, messageId: "m" });
    await sender.sendMessages({ body: 2, messageId: "m" });
    await sender.sendMessages([
      { body: 3, messageId: "n" },
      { body: 4, messageId: "n" },
      { body: 5, messageId: 7 },
    ]);
    await sender.sendMessages({ body: 6, messageId: 7 });
    const receiver = client.createReceiver(queue);
    assert.deepEqual(bodies(await receive(receiver, 3)), [1, 3, 5]);
    assert.equal((await peekAll(receiver)).length, 3);
  });

  it("forwards from one queue to another", async () => {
    const group = takeQueue("relay");
    await client.createSender(`${group}/in`).sendMessages({ body: "x", messageId: "m" });
    const message = await receiveOne(client.createReceiver(`${group}/out`));
    assert.deepEqual([message.body, message.messageId], ["x", "m"]);
    const receiver = makeClient(connectionString, ONCE).createReceiver(`${group}/in`);
    await assert.rejects(receiver.receiveMessages(1), /auto-forwarding/);
    // Browsing needs no receiver: what waits there is seen.
    const later = new Date(Date.now() + 3_600_000);
    await client.createSender(`${group}/in`).scheduleMessages({ body: "later" }, later);
    assert.deepEqual(bodies(await peekAll(client.createReceiver(`${group}/in`))), ["later"]);
  });

  it("forwards dead letters, which say where they come from", async () => {
    const group = takeQueue("relay-dead");
    await client.createSender(`${group}/in`).sendMessages({ body: "x" });
    const receiver = client.createReceiver(`${group}/in`);
    await receiver.deadLetterMessage(await receiveOne(receiver), { deadLetterReason: "Why" });
    const dead = await receiveOne(client.createReceiver(`${group}/dead`));
    assert.deepEqual([dead.body, dead.deadLetterReason], ["x", "Why"]);
    assert.equal(dead.deadLetterSource, `${group}/in`);
  });

  it("says that an entity is disabled", async () => {
    const group = takeQueue("topic-statuses");
    const once = makeClient(connectionString, ONCE);
    const sender = once.createSender(`${group}/send-disabled`);
    await refused(sender.sendMessages({ body: 1 }), "MessagingEntityDisabled");
    const receiver = once.createReceiver(`${group}/active`, "receive-disabled");
    await refused(receiver.receiveMessages(1), "MessagingEntityDisabled");
  });

  it("says that an entity is full, and takes messages again when it is not", async () => {
    const queue = takeQueue("small");
    const sender = makeClient(connectionString, ONCE).createSender(queue);
    // A key, because each partition has a part of the room.
    const message = { body: Buffer.alloc(200_000), partitionKey: "k" };
    const fill = async () => {
      for (let turn = 0; turn < 20; turn += 1) {
        await sender.sendMessages(message);
      }
    };
    await refused(fill(), "QuotaExceeded");
    const receiver = client.createReceiver(queue);
    await receiver.completeMessage(await receiveOne(receiver));
    await sender.sendMessages(message);
  });
});
