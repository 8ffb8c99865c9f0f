// Locks and expiry in real time.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  LOCK_SHORT_MS,
  SIDE_BY_SIDE,
  TTL_MS,
  another,
  assertNothingComes,
  bodies,
  counted,
  open,
  peekAll,
  receive,
  receiveOne,
  refused,
  sleep,
} from "./bus.mjs";

// This client renews locks by itself unless it is told not to.
const NOT_RENEWED = { maxAutoLockRenewalDurationInMs: 0 };
const SHORT = { kind: "short-lock", ...NOT_RENEWED };
const EXPIRED_MS = LOCK_SHORT_MS + 500;

describe("locks", SIDE_BY_SIDE, () => {
  it("R-L3: an expired lock puts the message back at its place", async () => {
    const { queue, sender, receiver } = open(SHORT);
    await sender.sendMessages(counted(3));
    await receiveOne(receiver);
    await sleep(EXPIRED_MS);
    const messages = await receive(another(queue), 3);
    assert.deepEqual(bodies(messages), [0, 1, 2]);
    assert.deepEqual(messages.map((message) => message.deliveryCount), [1, 0, 0]);
  });

  it("R-S8: every settlement of an expired lock fails with lock lost", async () => {
    const { sender, receiver } = open(SHORT);
    await sender.sendMessages(counted(4));
    const [complete, abandon, defer, deadLetter] = await receive(receiver, 4);
    await sleep(EXPIRED_MS);
    const error = await refused(receiver.completeMessage(complete), "MessageLockLost");
    assert.match(error.message, /The lock supplied is invalid/);
    await refused(receiver.abandonMessage(abandon), "MessageLockLost");
    await refused(receiver.deferMessage(defer), "MessageLockLost");
    await refused(receiver.deadLetterMessage(deadLetter), "MessageLockLost");
    const again = await receive(receiver, 4);
    assert.deepEqual(again.map((message) => message.deliveryCount), [1, 1, 1, 1]);
    await Promise.all(again.map((message) => receiver.completeMessage(message)));
    assert.deepEqual(await peekAll(receiver), []);
  });

  it("R-L2: a renewed lock lasts, an expired one is not renewed", async () => {
    const { queue, sender, receiver } = open(SHORT);
    await sender.sendMessages(counted(2));
    const [kept, lost] = await receive(receiver, 2);
    const before = kept.lockedUntilUtc;
    await sleep(LOCK_SHORT_MS - 1_500);
    const until = await receiver.renewMessageLock(kept);
    assert.ok(until - before > LOCK_SHORT_MS - 2_500);
    assert.equal(kept.lockedUntilUtc.getTime(), until.getTime());
    await sleep(2_500);
    const error = await refused(receiver.renewMessageLock(lost), "MessageLockLost");
    assert.match(error.message, /The lock supplied is invalid/);
    await receiver.completeMessage(kept);
    assert.deepEqual(bodies(await peekAll(another(queue))), [1]);
  });

  it("R-L2: the client renews by itself while a handler works", async () => {
    const { queue, sender, receiver } = open({ kind: "short-lock" });
    await sender.sendMessages({ body: "slow" });
    let handled = 0;
    let started;
    const busy = new Promise((resolve) => (started = resolve));
    const errors = [];
    const subscription = receiver.subscribe({
      processMessage: async () => {
        started();
        await sleep(2.3 * LOCK_SHORT_MS);
        handled += 1;
      },
      processError: async (args) => void errors.push(args.error.message),
    });
    await busy;
    await assertNothingComes(another(queue), 2.3 * LOCK_SHORT_MS + 1_500);
    await subscription.close();
    assert.deepEqual([handled, errors], [1, []]);
    assert.deepEqual(await peekAll(another(queue)), []);
  });

  it("R-S7: expiries count as deliveries", async () => {
    const { sender, receiver, deadLetters } = open({
      kind: "short-lock-two-deliveries",
      ...NOT_RENEWED,
    });
    await sender.sendMessages({ body: "unwanted" });
    await receiveOne(receiver);
    assert.equal((await receiveOne(receiver)).deliveryCount, 1);
    const dead = await receiveOne(deadLetters);
    assert.equal(dead.deadLetterReason, "MaxDeliveryCountExceeded");
  });
});

describe("time to live", SIDE_BY_SIDE, () => {
  it("drops an expired message", async () => {
    const { sender, receiver, deadLetters } = open();
    await sender.sendMessages({ body: "old", timeToLive: TTL_MS });
    await sender.sendMessages({ body: "stays" });
    await sleep(TTL_MS + 500);
    assert.equal((await receiveOne(receiver)).body, "stays");
    await assertNothingComes(deadLetters);
  });

  it("R-S5: dead-letters where the queue says so", async () => {
    const { sender, receiver, deadLetters } = open({ kind: "dead-letter-on-expiry" });
    await sender.sendMessages({ body: "old", timeToLive: TTL_MS });
    await sleep(TTL_MS + 500);
    await assertNothingComes(receiver);
    const dead = await receiveOne(deadLetters);
    assert.deepEqual([dead.body, dead.deadLetterReason], ["old", "TTLExpiredException"]);
  });
});
