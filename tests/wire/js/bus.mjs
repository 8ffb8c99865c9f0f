// What all files share: one client on one connection, queues that nobody else uses, and patience.

import assert from "node:assert/strict";
import { after } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ServiceBusClient } from "@azure/service-bus";
import Long from "long";

export { sleep };

export const connectionString = process.env.PEEKLOCK_CONNECTION;
export const port = Number(process.env.PEEKLOCK_PORT);
export const LOCK_SHORT_MS = 5_000;
export const TTL_MS = 2_000;

// Tests of a file run side by side: most of their time is waiting, and one connection carries all of their links.
export const SIDE_BY_SIDE = { concurrency: 32 };

const pools = JSON.parse(process.env.PEEKLOCK_QUEUES);
const clients = [];

after(async () => {
  await Promise.all(clients.map((client) => client.close()));
});

export function takeQueue(kind = "plain") {
  const name = pools[kind].shift();
  assert.ok(name, `the pool of ${kind} queues is empty`);
  return name;
}

/** A client of its own; with its own connection string where a test is about keys. */
export function makeClient(text = connectionString, options = {}) {
  const client = new ServiceBusClient(text, options);
  clients.push(client);
  return client;
}

export const client = makeClient();

/** A sender and a receiver on a fresh queue, or on a named one. */
export function open(options = {}) {
  const { kind = "plain", queue = takeQueue(kind), of = client, ...receiverOptions } = options;
  return {
    queue,
    sender: of.createSender(queue),
    receiver: of.createReceiver(queue, receiverOptions),
    deadLetters: of.createReceiver(queue, { subQueueType: "deadLetter" }),
  };
}

export function another(queue, options = {}) {
  return client.createReceiver(queue, options);
}

/** Receive exactly so many messages, however many calls that takes. */
export async function receive(receiver, count = 1, withinMs = 20_000) {
  const deadline = Date.now() + withinMs;
  const messages = [];
  while (messages.length < count && Date.now() < deadline) {
    const left = deadline - Date.now();
    messages.push(
      ...(await receiver.receiveMessages(count - messages.length, { maxWaitTimeInMs: left })),
    );
  }
  assert.equal(messages.length, count, `${messages.length} of ${count} messages came`);
  return messages;
}

export async function receiveOne(receiver, withinMs) {
  return (await receive(receiver, 1, withinMs))[0];
}

export async function assertNothingComes(receiver, withinMs = 700) {
  const messages = await receiver.receiveMessages(1, { maxWaitTimeInMs: withinMs });
  assert.deepEqual(bodies(messages), []);
}

/** Browse from the first number to the end. */
export async function peekAll(receiver) {
  const found = [];
  let page = await receiver.peekMessages(200, { fromSequenceNumber: FIRST });
  while (page.length > 0) {
    found.push(...page);
    page = await receiver.peekMessages(200, {
      fromSequenceNumber: page.at(-1).sequenceNumber.add(1),
    });
  }
  return found;
}

export function bodies(messages) {
  return messages.map((message) => message.body);
}

export function numbers(messages) {
  return messages.map((message) => message.sequenceNumber.toNumber());
}

/** Which one each is of its partition; a plain queue has one, whose numbers are the places. */
export function places(messages) {
  return messages.map((message) => message.sequenceNumber.and(PLACE).toNumber());
}

/** The numbers of each partition begin with one and rise by one. */
export function assertNoGaps(messages) {
  const parts = {};
  for (const message of messages) {
    const name = message.sequenceNumber.shiftRight(48).toString();
    (parts[name] ??= []).push(message);
  }
  for (const part of Object.values(parts)) {
    const wanted = Array.from({ length: part.length }, (_, index) => index + 1);
    assert.deepEqual(places(part), wanted);
  }
}

export function counted(count) {
  return Array.from({ length: count }, (_, index) => ({ body: index, messageId: `${index}` }));
}

/** The error of an operation that must fail; a `ServiceBusError` with this code. */
export async function refused(operation, code) {
  const error = await operation.then(
    () => assert.fail("it was not refused"),
    (reason) => reason,
  );
  assert.equal(error.code, code, `${error.name}: ${error.message}`);
  return error;
}

// The client's class for 64-bit numbers.
export const FIRST = Long.fromNumber(1);
// The lower bits of a sequence number; those above are its partition's.
const PLACE = Long.ONE.shiftLeft(48).subtract(1);
// Messages with one key have an order among them in every queue.
export const KEY = { partitionKey: "k" };
// Whether the queues are partitioned, and promise less.
export const PARTITIONED = process.env.PEEKLOCK_WIRE_PARTITIONED === "1";
export const UNKNOWN = Long.fromNumber(123_456);
