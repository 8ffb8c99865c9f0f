// Administration with the official client: every operation and property, over TLS, which it insists on.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ServiceBusAdministrationClient } from "@azure/service-bus";
import { makeClient, receive } from "./bus.mjs";

const httpPort = process.env.PEEKLOCK_HTTP_PORT;
const text = process.env.PEEKLOCK_CONNECTION.replace(/sb:\/\/localhost:\d+/, `sb://localhost:${httpPort}`);
const NEVER = "P10675199DT2H48M5.4775807S";

function makeClerk(string = text, options = {}) {
  return new ServiceBusAdministrationClient(string, { retryOptions: { maxRetries: 0 }, ...options });
}

const clerk = makeClerk();

/** What the client gives beside the answer itself, and what it leaves undefined, is no property. */
function plain(answer) {
  const { _response, ...properties } = answer;
  return Object.fromEntries(Object.entries(properties).filter(([, value]) => value !== undefined));
}

async function all(iterator) {
  const found = [];
  for await (const each of iterator) found.push(each);
  return found;
}

async function refused(wish, code, words = /./) {
  await assert.rejects(wish, (error) => {
    assert.equal(error.code, code, error.message);
    assert.match(error.message, words);
    return true;
  });
}

test("a queue has the defaults of the service", async () => {
  await clerk.createQueue("js.adm.plain");
  assert.deepEqual(plain(await clerk.getQueue("js.adm.plain")), {
    name: "js.adm.plain",
    lockDuration: "PT1M",
    maxSizeInMegabytes: 1024,
    maxDeliveryCount: 10,
    enablePartitioning: false,
    requiresSession: false,
    enableBatchedOperations: true,
    defaultMessageTimeToLive: NEVER,
    autoDeleteOnIdle: NEVER,
    requiresDuplicateDetection: false,
    duplicateDetectionHistoryTimeWindow: "PT10M",
    deadLetteringOnMessageExpiration: false,
    status: "Active",
    enableExpress: false,
    availabilityStatus: "Available",
    maxMessageSizeInKilobytes: 256,
  });
  assert.equal(await clerk.queueExists("js.adm.plain"), true);
  await clerk.deleteQueue("js.adm.plain");
  assert.equal(await clerk.queueExists("js.adm.plain"), false);
});

test("every property of a queue is kept", async () => {
  await clerk.createQueue("js.adm/target");
  const chosen = {
    lockDuration: "PT13S",
    maxSizeInMegabytes: 2048,
    requiresDuplicateDetection: true,
    requiresSession: false,
    defaultMessageTimeToLive: "PT11M",
    deadLetteringOnMessageExpiration: true,
    duplicateDetectionHistoryTimeWindow: "PT12M",
    maxDeliveryCount: 14,
    enableBatchedOperations: false,
    userMetadata: "<m> & n",
    autoDeleteOnIdle: "PT10M",
    enablePartitioning: false,
    enableExpress: true,
    maxMessageSizeInKilobytes: 1024,
    authorizationRules: [
      {
        claimType: "SharedAccessKey",
        accessRights: ["Manage", "Send", "Listen"],
        keyName: "owner",
        primaryKey: "b25l",
        secondaryKey: "dHdv",
      },
    ],
  };
  const forward = { forwardTo: "js.adm/target", forwardDeadLetteredMessagesTo: "js.adm/target" };
  await clerk.createQueue("js.adm/full", { ...chosen, ...forward });
  const queue = await clerk.getQueue("js.adm/full");
  for (const [name, value] of Object.entries(chosen)) assert.deepEqual(queue[name], value, name);
  const given = `sb://localhost:${httpPort}/js.adm/target`;
  assert.deepEqual([queue.forwardTo, queue.forwardDeadLetteredMessagesTo], [given, given]);
  queue.lockDuration = "PT2M";
  queue.status = "ReceiveDisabled";
  queue.forwardTo = undefined;
  await clerk.updateQueue(queue);
  const changed = await clerk.getQueue("js.adm/full");
  assert.equal(changed.lockDuration, "PT2M");
  assert.equal(changed.status, "ReceiveDisabled");
  assert.equal(changed.forwardTo, undefined);
  assert.deepEqual(changed.authorizationRules, chosen.authorizationRules);
  assert.equal(changed.maxSizeInMegabytes, 2048);
  await refused(clerk.updateQueue({ ...changed, requiresSession: true }), "ServiceError", /RequiresSession property/);
  for (const name of ["js.adm/full", "js.adm/target"]) await clerk.deleteQueue(name);
});

test("counts are right right after the operation", async () => {
  const bus = makeClient();
  await clerk.createQueue("js.adm.counts", { enablePartitioning: true });
  const sender = bus.createSender("js.adm.counts");
  await sender.sendMessages([{ body: "a" }, { body: "b" }]);
  await sender.scheduleMessages({ body: "c" }, new Date(Date.now() + 3_600_000));
  const receiver = bus.createReceiver("js.adm.counts");
  const [held] = await receive(receiver, 1);
  await receiver.deadLetterMessage(held);
  const live = await clerk.getQueueRuntimeProperties("js.adm.counts");
  assert.deepEqual(
    [live.totalMessageCount, live.activeMessageCount, live.deadLetterMessageCount, live.scheduledMessageCount],
    [3, 1, 1, 1],
  );
  assert.equal(live.transferMessageCount + live.transferDeadLetterMessageCount, 0);
  assert.ok(live.sizeInBytes > 0);
  assert.ok(live.accessedAt >= live.createdAt);
  const listed = await all(clerk.listQueuesRuntimeProperties());
  assert.equal(listed.find((each) => each.name === "js.adm.counts").totalMessageCount, 3);
  await receiver.close();
  await sender.close();
  await clerk.deleteQueue("js.adm.counts");
});

test("every property of a topic and a subscription is kept", async () => {
  const topic = {
    maxSizeInMegabytes: 2048,
    requiresDuplicateDetection: true,
    defaultMessageTimeToLive: "PT11M",
    duplicateDetectionHistoryTimeWindow: "PT12M",
    enableBatchedOperations: false,
    supportOrdering: false,
    userMetadata: "noted",
    autoDeleteOnIdle: "PT10M",
    enableExpress: true,
    maxMessageSizeInKilobytes: 1024,
  };
  await clerk.createTopic("js.adm/news", topic);
  const found = await clerk.getTopic("js.adm/news");
  for (const [name, value] of Object.entries(topic)) assert.deepEqual(found[name], value, name);
  await clerk.updateTopic({ ...found, userMetadata: "changed" });
  assert.equal((await clerk.getTopic("js.adm/news")).userMetadata, "changed");
  const subscription = {
    lockDuration: "PT13S",
    requiresSession: true,
    defaultMessageTimeToLive: "PT11M",
    deadLetteringOnMessageExpiration: true,
    deadLetteringOnFilterEvaluationExceptions: false,
    maxDeliveryCount: 14,
    enableBatchedOperations: false,
    userMetadata: "noted",
    autoDeleteOnIdle: "PT10M",
  };
  await clerk.createSubscription("js.adm/news", "some", {
    ...subscription,
    defaultRuleOptions: { name: "first", filter: { sqlExpression: "a = 1" } },
  });
  const made = await clerk.getSubscription("js.adm/news", "some");
  for (const [name, value] of Object.entries(subscription)) assert.deepEqual(made[name], value, name);
  assert.deepEqual([made.topicName, made.subscriptionName], ["js.adm/news", "some"]);
  await clerk.updateSubscription({ ...made, maxDeliveryCount: 3 });
  assert.equal((await clerk.getSubscription("js.adm/news", "some")).maxDeliveryCount, 3);
  const live = await clerk.getTopicRuntimeProperties("js.adm/news");
  assert.deepEqual([live.subscriptionCount, live.scheduledMessageCount], [1, 0]);
  const counts = await clerk.getSubscriptionRuntimeProperties("js.adm/news", "some");
  assert.equal(counts.totalMessageCount, 0);
  assert.deepEqual((await all(clerk.listRules("js.adm/news", "some"))).map((rule) => rule.name), ["first"]);
  assert.deepEqual(
    (await all(clerk.listSubscriptionsRuntimeProperties("js.adm/news"))).map((each) => each.subscriptionName),
    ["some"],
  );
  assert.equal(await clerk.subscriptionExists("js.adm/news", "some"), true);
  await clerk.deleteSubscription("js.adm/news", "some");
  assert.equal(await clerk.subscriptionExists("js.adm/news", "some"), false);
  await clerk.deleteTopic("js.adm/news");
  assert.equal(await clerk.topicExists("js.adm/news"), false);
});

test("rules keep their texts and values", async () => {
  await clerk.createTopic("js.adm.rules");
  await clerk.createSubscription("js.adm.rules", "s");
  const filter = { sqlExpression: "a = @p AND  b = @q", sqlParameters: { "@p": 5, "@q": "x y" } };
  const action = { sqlExpression: "SET z = @r", sqlParameters: { "@r": true } };
  await clerk.createRule("js.adm.rules", "s", "sql", filter, action);
  const rule = await clerk.getRule("js.adm.rules", "s", "sql");
  assert.deepEqual([rule.filter, rule.action], [filter, action]);
  const correlation = {
    correlationId: "c",
    subject: "l",
    to: "t",
    replyTo: "r",
    replyToSessionId: "rs",
    sessionId: "s",
    messageId: "m",
    contentType: "ct",
    applicationProperties: { a: 1.5, b: "x", c: true, d: new Date(1_700_000_000_000) },
  };
  await clerk.createRule("js.adm.rules", "s", "correlation", correlation);
  const found = await clerk.getRule("js.adm.rules", "s", "correlation");
  assert.deepEqual(found.filter, correlation);
  await clerk.updateRule("js.adm.rules", "s", { ...found, filter: { sqlExpression: "x = 1" } });
  const rules = await all(clerk.listRules("js.adm.rules", "s"));
  assert.deepEqual(rules.map((each) => each.name), ["$Default", "correlation", "sql"]);
  assert.equal(rules[1].filter.sqlExpression, "x = 1");
  assert.equal(await clerk.ruleExists("js.adm.rules", "s", "sql"), true);
  await clerk.deleteRule("js.adm.rules", "s", "sql");
  assert.equal(await clerk.ruleExists("js.adm.rules", "s", "sql"), false);
  await refused(clerk.createRule("js.adm.rules", "s", "bad", { sqlExpression: "a = = b" }), "ServiceError", /parse/);
  await clerk.deleteTopic("js.adm.rules");
});

test("lists have pages", async () => {
  const names = [0, 1, 2, 3, 4].map((number) => `js.adm.page/${number}`);
  for (const name of names) await clerk.createTopic(name);
  const pages = [];
  for await (const page of clerk.listTopics().byPage({ maxPageSize: 60 })) pages.push(page.map((each) => each.name));
  assert.ok(pages.every((page) => page.length <= 60));
  const found = pages.flat();
  assert.deepEqual(found.filter((name) => name.startsWith("js.adm.page")), names);
  assert.equal(new Set(found).size, found.length);
  const queues = (await all(clerk.listQueues())).map((each) => each.name);
  assert.ok(queues.length > 100, "more than a page");
  assert.equal(new Set(queues).size, queues.length);
  for (const name of names) await clerk.deleteTopic(name);
});

test("dates in rules come back as they were given", async () => {
  await clerk.createTopic("js.adm.dates");
  await clerk.createSubscription("js.adm.dates", "s");
  const at = new Date("2024-02-29T12:00:00.250Z");
  await clerk.createRule("js.adm.dates", "s", "r", { sqlExpression: "d < @d", sqlParameters: { "@d": at } });
  await clerk.createRule("js.adm.dates", "s", "c", { applicationProperties: { d: at } });
  assert.deepEqual((await clerk.getRule("js.adm.dates", "s", "r")).filter.sqlParameters, { "@d": at });
  assert.deepEqual((await clerk.getRule("js.adm.dates", "s", "c")).filter.applicationProperties, { d: at });
  const live = await clerk.getSubscriptionRuntimeProperties("js.adm.dates", "s");
  assert.deepEqual(live.accessedAt, live.createdAt, "nobody has used it");
  assert.equal(await clerk.subscriptionExists("js.adm.dates", "no"), false);
  assert.equal(await clerk.ruleExists("js.adm.dates", "s", "no"), false);
  await clerk.deleteTopic("js.adm.dates");
});

test("a size of messages is within bounds, or as it was", async () => {
  for (const maxMessageSizeInKilobytes of [256, 1023, 102401])
    await refused(clerk.createQueue("js.adm.size", { maxMessageSizeInKilobytes }), "ServiceError", /1024 and 102400/);
  await clerk.createQueue("js.adm.size");
  const queue = await clerk.getQueue("js.adm.size");
  await clerk.updateQueue({ ...queue, maxDeliveryCount: 3 });
  assert.equal((await clerk.getQueue("js.adm.size")).maxMessageSizeInKilobytes, 256);
  await clerk.deleteQueue("js.adm.size");
});

test("refusals have the codes that programs look for", async () => {
  await clerk.createQueue("js.adm.there");
  await refused(clerk.createQueue("js.adm.there"), "MessageEntityAlreadyExistsError", /SubCode=40900/);
  await refused(clerk.getQueue("js.adm.no"), "MessageEntityNotFoundError");
  await refused(clerk.deleteQueue("js.adm.no"), "MessageEntityNotFoundError");
  await refused(clerk.getRule("js.adm.no", "s", "r"), "MessageEntityNotFoundError");
  await refused(clerk.createSubscription("js.adm.no", "s"), "MessageEntityNotFoundError");
  await refused(clerk.createQueue("js.adm.x", { lockDuration: "PT6M" }), "ServiceError", /maximum of '5' minutes/);
  await refused(clerk.createQueue("js.adm.x", { forwardTo: "js.adm.no" }), "ServiceError", /destination/);
  await refused(clerk.getQueue(""), "MessageEntityNotFoundError");
  await refused(clerk.createTopic(""), "ServiceError");
  await refused(clerk.getQueue("js.adm.there/$DeadLetterQueue"), "ServiceError", /not allowed/);
  await refused(makeClerk(text.replace(/SharedAccessKey=[^;]+/, "SharedAccessKey=wrong")).getQueue("js.adm.there"), "UnauthorizedRequestError");
  await clerk.deleteQueue("js.adm.there");
});

test("who receives from a queue that is deleted hears that it is gone", async () => {
  await clerk.createQueue("js.adm.gone");
  const client = makeClient(process.env.PEEKLOCK_CONNECTION, { retryOptions: { maxRetries: 0 } });
  await client.createSender("js.adm.gone").sendMessages({ body: "x" });
  const told = new Promise((resolve) => {
    client.createReceiver("js.adm.gone").subscribe(
      {
        processMessage: async () => void (await clerk.deleteQueue("js.adm.gone")),
        processError: async ({ error }) => resolve(error.code),
      },
      { autoCompleteMessages: false },
    );
  });
  assert.equal(await told, "MessagingEntityNotFound");
});

test("the namespace says who it is", async () => {
  const found = await clerk.getNamespaceProperties();
  assert.equal(found.name, "sbemulatorns");
  assert.equal(found.messagingSku, "Standard");
  assert.ok(found.createdAt instanceof Date);
});
